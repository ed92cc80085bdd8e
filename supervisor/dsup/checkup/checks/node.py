"""The machine itself: processors, memory, clock, container, the job's Python. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from dsup.checkup.finding import Check, Said, silent
from dsup.checkup.readings import PATIENT_S, READER_S, Readings

_SWAPPED_KB: Final = 1 << 20
_SCARCE: Final = 0.05
_PROC: Final = "/proc"


def container(readings: Readings) -> Iterator[Said]:
    """Where this runs. In a container the node's own log, clock and limits are hidden.

    Signs: marks that container managers leave, and a PID namespace of its own.
    """
    system = readings.system
    if system is None:
        yield silent(_PROC, READER_S)
        return
    first = f", process 1 is {system.first}" if system.first else ""
    if system.container:
        yield Said("ok", f"in a container ({system.container}){first}")
    elif not system.initial_pids:
        yield Said("ok", f"in a PID namespace of its own{first}")
    else:
        yield Said("ok", f"no container{first}")


def processors(readings: Readings) -> Iterator[Said]:
    """A rank with less than one processor waits for it; its heartbeats then tremble.

    What counts is the smaller of the affinity and the cgroup's quota.
    """
    system = readings.system
    if system is None:
        return
    count = float(system.processors)
    if system.quota is not None:
        count = min(count, system.quota)
    what = f"{count:g} processor{'s' * (count != 1)} for {_ranks(readings.ranks)}"
    if count < readings.ranks:
        fix = "start fewer ranks, or raise CPUQuota=, cpu.max or the request"
        yield Said("warn", what, fix)
    else:
        yield Said("ok", what)


def memory(readings: Readings) -> Iterator[Said]:
    """Memory that is left, by the node and by the cgroup; pages that were swapped out.

    Thresholds: below 5 % available; more than 1 GiB swapped.
    """
    system = readings.system
    if system is None or not system.memory_kb or system.available_kb is None:
        return
    left = system.available_kb / system.memory_kb
    text = f"{_gib(system.available_kb)} of {_gib(system.memory_kb)} available"
    limit = readings.cgroups.memory_limit if readings.cgroups else None
    if limit is not None:
        text += f", limit {_gib(limit / 1024)}"
    if left < _SCARCE:
        yield Said("warn", text, "ps aux --sort=-rss | head")
    else:
        yield Said("ok", text)
    swapped = (system.swap_kb or 0) - (system.swap_free_kb or 0)
    if swapped > _SWAPPED_KB:
        text = f"{_gib(swapped)} are swapped out: a rank that needs them stands still"
        yield Said("warn", text, "swapoff -a, if memory has room for them")


def clock(readings: Readings) -> Iterator[Said]:
    """Whether somebody keeps the clock right: logs of several nodes are joined by it.

    Source: adjtimex(2), STA_UNSYNC. A virtual machine may have its host's clock, and a
    container always has, without the kernel knowing.
    """
    told = readings.clock
    if told is None or told.synchronised is None:
        yield Said("unknown", "the kernel does not tell whether its clock is right")
    elif told.synchronised:
        error = f", {told.error_us / 1000:.0f} ms at most" if told.error_us else ""
        yield Said("ok", f"the clock is synchronised{error}")
    elif readings.system and readings.system.container:
        yield Said("unknown", "nobody tells this container that the clock is right")
    else:
        yield Said(
            "warn",
            "the clock is not synchronised",
            "timedatectl set-ntp true, or install chrony",
        )


def python(readings: Readings) -> Iterator[Said]:
    """The job's interpreter must start; torch is looked up, not imported.

    It is the job's: no other node cures a wrong path, and a slow start is no fault.
    """
    if not readings.asked.python:
        return
    found = readings.interpreter
    if found is None:
        text = f"{readings.asked.python}: nobody could ask it"
        if "interpreter" in readings.silent:
            text = f"{readings.asked.python} did not answer within {PATIENT_S:g} s"
        yield Said("unknown", text, "see whether its file system answers: ls -l, df")
    elif found.unclear:
        text = f"{readings.asked.python} is not known to run: {found.unclear}"
        yield Said("warn", text, f"time {readings.asked.python} -c pass")
    elif found.error:
        text = f"{readings.asked.python} does not run: {found.error}"
        yield Said("bad", text, "set PYTHON_EXEC, or activate the environment")
    elif not found.torch:
        text = f"Python {found.python} has no torch"
        yield Said("warn", text, "activate the job's environment, or set PYTHON_EXEC")
    else:
        cuda = f", CUDA {found.cuda}" if found.cuda else ""
        yield Said("ok", f"Python {found.python}, torch {found.torch}{cuda}")


CHECKS: Final = (
    Check("container", "Node", container),
    Check("processors", "Node", processors),
    Check("memory", "Node", memory),
    Check("clock", "Node", clock),
    Check("python", "The job", python),
)


def _ranks(count: int) -> str:
    return f"{count} rank{'s' * (count != 1)}"


def _gib(size_kb: float) -> str:
    return f"{size_kb / (1 << 20):.1f} GiB"
