"""Which GPU a rank uses: what CUDA was told, and what the rank has open."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsup.facts.hardware import (
    Access,
    Card,
    Gpu,
    Slice,
    gpu_of,
    pci_address,
    visible_devices,
)


def card(number, *slices, name="H100", minor=None):
    """Return a GPU whose UUID begins with its number."""
    return Card(
        Gpu(
            number,
            f"GPU-{number}a11-77",
            f"0000:{0x1B + number:02x}:00",
            number if minor is None else minor,
            name=name,
        ),
        tuple(
            Slice(f"MIG-{number}{at}c-5", 7 + at, 0) for at, _ in enumerate(slices, 1)
        ),
    )


FOUR = tuple(card(number) for number in range(4))
MIG = (card(0, "1g", "1g"), card(1, "1g", "1g"))


def numbers(cards, visible, order=""):
    """Return what CUDA shows, as numbers of NVML."""
    access = Access(0, visible, order)
    return [device.number for device in visible_devices(cards, access)]


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        pytest.param(None, [0, 1, 2, 3], id="no list: all"),
        pytest.param("2,3", [2, 3], id="numbers"),
        pytest.param(" 3 , 1", [3, 1], id="in the order of the list"),
        pytest.param("GPU-2a11-77,0", [2, 0], id="a UUID among numbers"),
        pytest.param("GPU-2,GPU-1", [2, 1], id="abbreviated UUIDs"),
        pytest.param("GPU-", [], id="an abbreviation of several means none"),
        pytest.param("1,-1,2", [1], id="what follows an invalid entry is hidden"),
        pytest.param("1,7,2", [1], id="a number that there is not"),
        pytest.param("1,all,2", [1], id="a word"),
        pytest.param("", [], id="an empty list hides all"),
        pytest.param("NoDevFiles", [], id="what containers write for none"),
        pytest.param("1,2,1", [], id="CUDA refuses a list that repeats"),
        pytest.param("²", [], id="a digit that is none"),
        pytest.param("9" * 5000, [], id="a number of any length"),
    ],
)
def test_a_list_shows_gpus_as_cuda_reads_it(visible, expected):
    """CUDA_VISIBLE_DEVICES holds numbers, UUIDs or their beginnings."""
    assert numbers(FOUR, visible) == expected


def test_numbers_of_unlike_gpus_mean_nothing_without_their_order():
    """CUDA puts the fastest first; only the order of the bus is known here."""
    mixed = (card(0, name="L4"), card(1))

    assert numbers(mixed, None) == numbers(mixed, "0") == []
    assert numbers(mixed, "GPU-1,GPU-0") == [1, 0]
    assert numbers(mixed, "1,0", "PCI_BUS_ID") == [1, 0]


@pytest.mark.parametrize(
    ("visible", "uuid"),
    [
        ("MIG-12c-5", "MIG-12c-5"),
        ("MIG-12", "MIG-12c-5"),
        ("MIG-GPU-1a11-77/9/0", "MIG-12c-5"),
        ("0", "MIG-01c-5"),
        ("GPU-1a11-77", "MIG-11c-5"),
        (None, "MIG-01c-5"),
        ("MIG-12,MIG-01", "MIG-12c-5"),
    ],
)
def test_of_mig_devices_cuda_shows_one(visible, uuid):
    """It is named by its UUID, new or old, or is the first of a GPU."""
    assert [d.mig for d in visible_devices(MIG, Access(0, visible))] == [uuid]


@pytest.mark.parametrize(
    "visible", ["MIG-GPU-1a11-77/9", "MIG-GPU-1a11-77/9/3", "MIG-"]
)
def test_a_mig_device_that_is_not_there_is_none(visible):
    """A name that fits nothing, or several, shows nothing."""
    assert visible_devices(MIG, Access(0, visible)) == ()


def test_a_rank_uses_the_gpu_of_its_local_number():
    """That is what every framework does."""
    assert gpu_of(FOUR, Access(2)) == FOUR[2].gpu
    assert gpu_of(FOUR, Access(1, "3,0")) == FOUR[0].gpu
    assert gpu_of(FOUR, Access(5)) is None


def test_where_one_gpu_is_visible_every_rank_uses_it():
    """There is nothing else to use, whatever the local number."""
    assert gpu_of(FOUR, Access(3, "2")) == FOUR[2].gpu


def test_one_open_gpu_decides():
    """The device node that a rank has open is the one it uses, by its minor."""
    crossed = (card(0, minor=1), card(1, minor=0))

    assert gpu_of(crossed, Access(0, minors=frozenset({0}))) == crossed[1].gpu


def test_several_open_gpus_only_confirm():
    """Peers' nodes are open, too; where the expected one is not, nothing is known."""
    assert gpu_of(FOUR, Access(2, minors=frozenset({0, 1, 2}))) == FOUR[2].gpu
    assert gpu_of(FOUR, Access(2, minors=frozenset({0, 1}))) is None


def test_open_nodes_of_no_known_gpu_tell_nothing():
    """Then the convention stands."""
    assert gpu_of(FOUR, Access(2, minors=frozenset({9}))) == FOUR[2].gpu


def test_an_open_gpu_keeps_the_mig_device_that_is_used():
    """The node is the whole GPU's; the list tells the part."""
    used = gpu_of(MIG, Access(0, "MIG-12", minors=frozenset({1})))

    assert used is not None
    assert (used.number, used.mig) == (1, "MIG-12c-5")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("00000000:CB:00.0", "0000:cb:00"),
        ("0000:cb:00", "0000:cb:00"),
        ("00010000:07:00.0", "10000:07:00"),
        ("cb:00.0", ""),
        ("", ""),
        ("0000:zz:00", ""),
        ("-1:+2: 3", ""),
    ],
)
def test_pci_addresses_of_all_sources_are_written_alike(text, expected):
    """NVML and the kernel log do not agree on digits, letters and function."""
    assert pci_address(text) == expected


@given(st.text(max_size=60), st.text(max_size=60))
def test_no_list_is_too_odd(visible, order):
    """Whatever is in the environment, an answer comes, and of known GPUs."""
    shown = visible_devices((*FOUR, *MIG), Access(0, visible, order))

    assert {device.number for device in shown} <= {0, 1, 2, 3}
