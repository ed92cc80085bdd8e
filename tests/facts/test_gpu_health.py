"""How a GPU is after a death: bad by a name, and new; ok; or unknown."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsup.facts import gpu_health, nvml
from dsup.facts.gpu_health import health, memory_errors
from dsup.facts.hardware import Card, Gpu
from dsup.facts.nvml import Event, Probed, Reading

GPU = Gpu(6, "GPU-6", "0000:cb:00", 6)
XID = gpu_health.XID


def judged(before=None, after=None, errors=None, events=()):
    """Return how a GPU is whose values were so before and are so after."""
    then = Reading(before or {})
    now = Reading(after or {}, errors or {}, 20.0)
    return health(GPU, then, now, tuple(events))


@pytest.mark.parametrize(
    ("before", "after", "problem"),
    [
        ({"ecc_volatile": 0}, {"ecc_volatile": 1}, "ecc"),
        ({"ecc_aggregate": 3}, {"ecc_aggregate": 5}, "ecc"),
        ({"remapped": 1}, {"remapped": 2}, "ecc"),
        ({"retired": 0}, {"retired": 1}, "ecc"),
        ({"remap_failure": 0}, {"remap_failure": 1}, "row_remap"),
        ({"recovery": 0}, {"recovery": 4}, "recovery_action"),
        ({"recovery": 1}, {"recovery": 2}, "recovery_action"),
        ({}, {"recovery": 2}, "recovery_action"),
    ],
)
def test_what_became_worse_is_bad(before, after, problem):
    """Only the difference counts: the beginning is the attempt's."""
    found = judged(before, after)

    assert (found.state, found.problem) == ("bad", problem)
    assert found.text.startswith("GPU 6 (0000:cb:00) ")


def test_memory_errors_are_counted_since_the_attempt_began():
    """By counters; an event counts while a rank lives, and no counter is read anew."""
    events = (Event(6, gpu_health.DOUBLE_BIT, 0), Event(6, XID, 79))
    then = Reading({"ecc_volatile": 3})

    assert memory_errors(GPU, then, Reading({"ecc_volatile": 5})) == 2
    assert memory_errors(GPU, then, then, events) == 1
    assert memory_errors(GPU, then, None) == 0


@pytest.mark.parametrize(
    ("before", "after", "state"),
    [
        ({"ecc_volatile": 2}, {"ecc_volatile": 2}, "ok"),
        ({}, {"ecc_volatile": 2}, "ok"),
        ({"ecc_volatile": 2}, {"ecc_volatile": 0}, "ok"),
        ({"remap_pending": 0}, {"remap_pending": 1}, "ok"),
        ({"remap_failure": 1}, {"remap_failure": 1}, "unknown"),
        ({"recovery": 3}, {"recovery": 3}, "unknown"),
    ],
)
def test_what_was_so_before_ended_nothing(before, after, state):
    """Old errors are no finding, and a GPU that was not well is not called well."""
    assert judged(before, after).state == state


def test_errors_after_a_reset_count_from_zero():
    """A counter that fell was set back; what it shows has come since."""
    found = judged({"ecc_volatile": 9}, {"ecc_volatile": 2})

    assert found.problem == "ecc"
    assert "had 2 uncorrectable memory errors" in found.text
    assert "its error counters started again: it was reset meanwhile" in found.notes


@pytest.mark.parametrize(
    ("code", "state", "problem"),
    [
        (nvml.LOST, "bad", "lost"),
        (nvml.RESET_REQUIRED, "bad", "reset_required"),
        (nvml.UNKNOWN, "unknown", ""),
        (nvml.NOT_SUPPORTED, "unknown", ""),
        (nvml.NO_PERMISSION, "unknown", ""),
        (nvml.FUNCTION_NOT_FOUND, "unknown", ""),
        (14, "unknown", ""),
    ],
)
def test_two_errors_of_nvml_are_findings_and_no_other(code, state, problem):
    """A desktop GPU without ECC, a container without rights are nobody's fault."""
    found = judged({"ecc_volatile": 0}, errors={"ecc_volatile": code})

    assert (found.state, found.problem) == (state, problem)


@pytest.mark.parametrize(
    ("before", "after", "state"), [(1, 0, "bad"), (1, 1, "unknown"), (0, 0, "unknown")]
)
def test_a_gpu_that_left_the_bus_is_lost_whatever_nvml_says(before, after, state):
    """Unknown error alone is none; where sysfs shows no buses, nothing is said."""
    found = judged({"on_bus": before}, {"on_bus": after}, {"ecc_volatile": 999})

    assert (found.state, found.problem) == (state, "lost" if state == "bad" else "")


def test_a_value_that_is_not_supported_leaves_the_others():
    """With MIG, rows are not told; ECC still is."""
    found = judged({"ecc_volatile": 0}, {"ecc_volatile": 0}, {"remapped_corrected": 3})

    assert found.state == "ok"


def test_no_answer_is_unknown():
    """Silence of one GPU is no word on it."""
    found = health(GPU, Reading({"ecc_volatile": 0}), None)

    assert (found.state, found.text) == ("unknown", "GPU 6 (0000:cb:00) gave no answer")


@pytest.mark.parametrize(
    ("event", "problem"),
    [
        (Event(6, XID, 79, 12.0), "xid"),
        (Event(6, XID, 48, 12.0), "xid"),
        (Event(6, gpu_health.DOUBLE_BIT, 0, 12.0), "ecc"),
        (Event(6, gpu_health.FATAL_POISON, 0, 12.0), "ecc"),
        (Event(6, gpu_health.RETIREMENT_FAILED, 0, 12.0), "row_remap"),
        (Event(6, gpu_health.UNAVAILABLE, 0, 12.0), "lost"),
    ],
)
def test_events_of_the_hardware_are_findings(event, problem):
    """They are told while it runs, and their time is when it began."""
    found = judged({"ecc_volatile": 0}, {"ecc_volatile": 0}, events=[event])

    assert (found.state, found.problem, found.at_s) == ("bad", problem, 12.0)


@pytest.mark.parametrize("number", [13, 31, 43, 45, 63, 92, 137, 145, 999])
def test_other_xids_are_told_and_find_nothing(number):
    """Of applications, of clean-up, and of those whose text would decide."""
    found = judged({"recovery": 0}, {"recovery": 0}, events=[Event(6, XID, number)])

    assert (found.state, found.xids) == ("ok", (number,))


def test_the_gravest_names_the_problem():
    """A lost GPU is lost, whatever its events were."""
    found = judged(
        errors={"recovery": 15}, events=[Event(6, XID, 48), Event(6, XID, 79)]
    )

    assert (found.problem, found.xids) == ("lost", (48, 79))


def test_links_lanes_and_brakes_are_notes():
    """They explain, and prove nothing."""
    before = {"link3_up": 1, "link3_crc": 4, "link4_up": 1, "slow_thermal_ns": 10**9}
    after = {
        "link3_up": 1,
        "link3_crc": 7,
        "link4_up": 0,
        "slow_thermal_ns": 31 * 10**9,
        "pcie_width": 8,
        "pcie_width_max": 16,
        "pcie_replays": 2,
        "throttle": 0x41,
    }

    assert judged(before | {"pcie_replays": 0}, after).notes == (
        "its PCIe link has 8 of 16 lanes",
        "PCIe replays: 2 more",
        "NVLink 3: 3 more checksum errors",
        "NVLink 4: went down",
        "slowed down for 30 s by heat",
        "is slowed down now: heat (hardware)",
    )


def test_each_gpu_is_compared_with_itself():
    """Frames come GPU by GPU and part by part."""
    cards = (Card(Gpu(0, "GPU-0", "")), Card(Gpu(1, "GPU-1", "")))

    def frame(number, **values):
        return json.dumps({"number": number, "values": values, "at_s": 1.0}).encode()

    probed = Probed(
        before=(frame(0, recovery=0), frame(1, recovery=0), frame(1, pcie_replays=0)),
        after=(frame(0, recovery=0), frame(1, recovery=2), frame(1, pcie_replays=5)),
        asked=True,
    )
    first, second = gpu_health.health_of_all(cards, probed)

    assert (first.state, second.state) == ("ok", "bad")
    assert second.notes == ("PCIe replays: 5 more",)


def test_gpus_that_nobody_asked_have_no_health():
    """A run that ends well, and a node whose NVML does not work."""
    cards = (Card(GPU),)

    assert gpu_health.health_of_all(cards, Probed()) == ()
    assert gpu_health.health_of_all(cards, Probed(asked=True, failed=b"9")) == ()


@pytest.mark.parametrize(
    ("probed", "words"),
    [
        (Probed(asked=True), ""),
        (Probed(), "not asked"),
        (Probed(failed=b"-1"), "this node has no NVIDIA GPU"),
        (Probed(failed=b"-1", present=True), "libnvidia-ml.so.1 is not there"),
        (Probed(failed=b"-2"), "nvidia-ml-py"),
        (Probed(failed=b"x"), "unknown error"),
        (Probed(asked=True, why_not="silent"), "silent"),
    ],
)
def test_why_nvml_says_nothing_is_said(probed, words):
    """Empty is only what was asked and answered."""
    assert words in nvml.missing(probed)
    assert bool(words) == bool(nvml.missing(probed))


NAMES = (
    *("cards", "number", "values", "errors", "uuid", "pci", "slices"),
    *("type", "data", "at_s", "minor", "ecc_volatile", "link0_up"),
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(NAMES),
            inner,
            max_size=6,
        )
    ),
    max_leaves=24,
)


@given(JSON, st.binary(max_size=40))
def test_no_frame_is_too_odd(told, raw):
    """A driver, or a probe, that is out of order answers anything."""
    body = json.dumps(told).encode()
    probed = Probed(body, (body, raw), (raw, body), (body, raw), asked=True)
    cards = (*nvml.decode_cards(body), *nvml.decode_cards(raw), Card(GPU))

    for found in gpu_health.health_of_all(cards, probed):
        assert found.state in {"ok", "bad", "unknown"}
        assert (found.state == "bad") == bool(found.problem)
