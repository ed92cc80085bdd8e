"""The catalogue of Xids and SXids, and which line of an incident was the first."""

import pytest

from dsup.facts import sxids
from dsup.facts.incidents import incidents, is_monitor
from dsup.facts.kernel import KernelFault
from dsup.facts.xids import ACTIONS, DIES, RECOVERY, XIDS, catalogued, is_device

KLASSES = {"application", "driver", "hardware", "link", "bookkeeping", "unknown"}


def xid(number, at_s=0.0, pci="0000:1b:00", **fields):
    """Return a line of the kernel's."""
    at_us = None if at_s is None else int(at_s * 1e6)
    return KernelFault("xid", xid=number, pci=pci, at_us=at_us, **fields)


def test_every_number_up_to_the_last_that_drivers_have_is_there():
    """Gaps would read as answers."""
    assert set(range(1, 177)) | {999} == set(XIDS)


def test_every_row_has_words_that_the_tables_know():
    """The table is text; what it says must be a word with a meaning."""
    for number, row in XIDS.items():
        assert row.number == number
        assert row.klass in KLASSES
        assert row.dies in DIES
        assert {row.immediate, row.investigate} <= set(ACTIONS)
        assert row.meaning
        assert row.blames


@pytest.mark.parametrize(
    ("number", "klass", "dies"),
    [
        (13, "application", "process"),
        (31, "application", "process"),
        (43, "application", "process"),
        (45, "bookkeeping", "follows"),
        (48, "hardware", "gpu"),
        (63, "bookkeeping", "nothing"),
        (74, "link", "fabric"),
        (79, "hardware", "gpu"),
        (92, "bookkeeping", "nothing"),
        (94, "hardware", "process"),
        (95, "hardware", "gpu"),
        (119, "driver", "gpu"),
        (154, "bookkeeping", "follows"),
    ],
)
def test_numbers_that_operators_know_by_heart(number, klass, dies):
    """Class and what dies, as NVIDIA's catalogue has them."""
    assert (XIDS[number].klass, XIDS[number].dies) == (klass, dies)


@pytest.mark.parametrize("number", [0, 177, 500, 10**6])
def test_an_unknown_number_gets_an_honest_answer(number):
    """It is said that the catalogue does not have it; nothing is guessed."""
    assert catalogued(number).klass == "unknown"
    assert "does not have" in catalogued(number).meaning
    assert not is_device(number)


def test_numbers_of_a_gpu_that_failed():
    """The whole list, so that no change of the table makes a GPU guilty unseen."""
    links = {74, 108, 136, *range(144, 151), 155, 173}
    parts = {
        26,
        30,
        33,
        46,
        48,
        54,
        59,
        61,
        62,
        64,
        79,
        94,
        95,
        110,
        119,
        120,
        140,
        143,
    }

    assert {n for n in XIDS if is_device(n)} == links | parts | {
        158,
        167,
        169,
        171,
        172,
    }


@pytest.mark.parametrize("number", [8, 13, 31, 43, 45, 63, 68, 92, 109, 137, 154])
def test_numbers_that_make_no_gpu_guilty(number):
    """Those that operators' tools ignore, and those for the record."""
    assert not is_device(number)


def test_recovery_actions_have_names_and_advice():
    """NVML numbers them from 0 to 7."""
    assert sorted(RECOVERY) == list(range(8))
    assert all(name and advice for name, advice in RECOVERY.values())


def test_the_root_is_the_first_line_that_is_no_aftermath():
    """Rows are noted, channels reset and actions named around it."""
    lines = [xid(n, n_s) for n, n_s in ((63, 0), (48, 0.1), (45, 0.2), (154, 3))]
    (found,) = incidents(lines)

    assert (found.number, found.root) == (48, lines[1])
    assert found.faults == tuple(lines)


@pytest.mark.parametrize(
    ("numbers", "root"),
    [
        pytest.param((94, 137), 137, id="poison of a peer"),
        pytest.param((94,), 94, id="poison of its own"),
        pytest.param((45, 43), 43, id="a reset goes before clean-up"),
        pytest.param((45, 154), 45, id="nothing but aftermath"),
        pytest.param((13, 43), 13, id="what the program did"),
    ],
)
def test_roots(numbers, root):
    """What may follow from another line of the incident is not the root."""
    (found,) = incidents([xid(n, i / 10) for i, n in enumerate(numbers)])

    assert found.number == root


def test_a_line_that_names_the_xid_before_it():
    """Where that one's own line is lost, its number is still known."""
    line = xid(45, previous_xid=119)
    (found,) = incidents([line])

    assert (found.number, found.root) == (119, line)


def test_incidents_of_gpus_and_of_times_are_apart():
    """Another GPU, or more than 5 s of silence, is another incident."""
    lines = [xid(79), xid(31, 1, "0000:2c:00"), xid(31, 6.1), xid(45, 11)]

    assert [one.number for one in incidents(lines)] == [79, 31, 31]


def test_lines_without_a_time_are_together():
    """Saved logs often have none."""
    lines = [xid(48, None), xid(45, None)]

    assert [one.number for one in incidents(lines)] == [48]


def test_other_kinds_and_lines_without_a_number_are_passed_over():
    """Only Xids make incidents."""
    assert incidents([KernelFault("segfault", 5), xid(None)]) == ()


@pytest.mark.parametrize(
    ("comm", "monitor"),
    [("nvidia-smi", True), ("NvmlTaskRunner", True), ("python3", False), (None, False)],
)
def test_monitors(comm, monitor):
    """Programs that only look are bystanders."""
    assert is_monitor(comm) is monitor


def test_no_switch_error_has_two_gravities():
    """The tables do not overlap."""
    tables = sxids.ALWAYS_FATAL, sxids.FATAL_IF_SAID, sxids.NEVER_FATAL, sxids.UNDECIDED

    assert sum(map(len, tables)) == len(sxids.SXIDS)


@pytest.mark.parametrize(
    ("number", "severity", "fatal"),
    [
        pytest.param(20034, "fatal", True, id="the word says so"),
        pytest.param(10003, "nonfatal", False, id="the word goes before the number"),
        pytest.param(10003, "", True, id="always fatal"),
        pytest.param(20034, "", False, id="only if said"),
        pytest.param(99999, "fatal", True, id="an unknown number"),
        pytest.param(None, "", False, id="no number"),
    ],
)
def test_which_switch_errors_are_fatal(number, severity, fatal):
    """The word decides; the number only where there is none."""
    assert sxids.is_fatal(number, severity) is fatal


def test_an_unknown_switch_error_is_said_to_be_one():
    """Nothing is guessed."""
    assert sxids.catalogued(1).gravity == "unknown"
