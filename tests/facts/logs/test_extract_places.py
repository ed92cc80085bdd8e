"""Which rank an end or a line of NCCL's is of, where no prefix tells."""

from __future__ import annotations

from dsup.facts.logs.extract import attempt
from dsup.facts.logs.line import LogLine, Place
from dsup.facts.logs.said import LoggedAttempt


def read(*texts: str | tuple[int, str]) -> LoggedAttempt:
    """Return what lines tell; a pair is a line of NCCL's with its process id."""
    lines = []
    for order, text in enumerate(texts):
        pid, said = text if isinstance(text, tuple) else (None, text)
        place = Place(pid=pid, node="gpu-a" if pid else "")
        lines.append(LogLine(said, place, "job.log", order + 1, order))
    return attempt(lines, 0)


def test_a_report_that_was_cut_above_its_first_entry() -> None:
    """The time of an entry counts although the heading of the list is gone."""
    found = read(
        "[3]:",
        "  time      : 2024-05-01_10:00:02",
        "  host      : n7",
        "  rank      : 3 (local_rank: 3)",
        "  exitcode  : 1 (pid: 413)",
    )

    (end,) = found.ends
    assert (end.place, end.status) == (Place(3, 3, "n7", 413), 1)
    assert end.at_s == 1714557602.0


def test_a_signal_on_the_line_below() -> None:
    """Open MPI 5 breaks its sentence before the signal."""
    found = read(
        "prterun noticed that process rank 7 with PID 0 on node gpu0291 exited on",
        "signal 6 (Aborted).",
    )

    (end,) = found.ends
    assert (end.place.rank, end.place.node, end.status) == (7, "gpu0291", -6)


def test_a_slot_of_a_host_is_no_rank() -> None:
    """Horovod names the host and the slot there; which node it is nobody tells."""
    found = read("Process name: worker-1[0]", "Exit code: 137")

    (end,) = found.ends
    assert (end.place.rank, end.place.local_rank, end.status) == (None, None, -9)
    assert end.place.node == "worker-1"


def test_a_device_alone_is_no_rank() -> None:
    """Other nodes may have a device of that number too."""
    found = read((41, "[3] include/alloc.h:178 NCCL WARN Cuda failure 'out of memory'"))

    assert found.complaints[0].place.rank is None


def test_devices_that_channels_show_to_be_ranks() -> None:
    """Two processes send as the ranks of their devices: so does a third."""
    found = read(
        (40, "[0] NCCL INFO Channel 00 : 0[1020] -> 1[1030] via SHM/direct/direct"),
        (41, "[1] NCCL INFO Channel 00 : 1[1030] -> 2[1040] via SHM/direct/direct"),
        (42, "[2] enqueue.cc:1085 NCCL WARN Cuda failure 'out of memory'"),
    )

    assert found.complaints[0].place.rank == 2


def test_a_receiver_s_line_names_the_other_first() -> None:
    """``[receive]`` lines are the second rank's."""
    found = read(
        (40, "[0] NCCL INFO Channel 00/0 : 5[1] -> 0[0] [receive] via NET/IB/0"),
        (41, "[1] NCCL INFO Channel 00/0 : 4[0] -> 1[1] [receive] via NET/IB/0"),
        (41, "[1] enqueue.cc:1085 NCCL WARN Cuda failure 'out of memory'"),
    )

    assert found.complaints[0].place.rank is None


def test_an_import_error_is_no_port_error() -> None:
    """The words of a network port's failure stand in others."""
    assert not any(c.kind == "nic" for c in read("Import error: no apex").complaints)


def test_deepspeed_is_known_by_the_function_of_its_logger() -> None:
    """The function stands in the prefix of the line that ends the ranks."""
    line = LogLine(
        "Killing subprocess 6193",
        Place(),
        "job.log",
        1,
        0,
        logger="l.py:428:sigkill_handler",
    )

    assert attempt([line], 0).launcher == "deepspeed"
