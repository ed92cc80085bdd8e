"""What dsup needs in order to see why a rank died. Pure.

None of this is needed to train: without it a verdict is less certain, or comes later.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from dsup.checkup.finding import Check, Said, silent
from dsup.checkup.readings import READER_S, Readings

SYS_PTRACE: Final = 19
"""CAP_SYS_PTRACE: Yama lets who has it look at any process."""

_SCOPES: Final = {1: "only parents may look", 2: "only root may look", 3: "nobody may"}


def kernel_log(readings: Readings) -> Iterator[Said]:
    """The kernel's log: OOM kills, Xids, segfaults, faults of memory and network.

    kernel.dmesg_restrict asks for CAP_SYSLOG; journald's copy needs a group, and comes
    later.
    """
    told = readings.kernel_log
    fix = (
        "AmbientCapabilities=CAP_SYSLOG, or sysctl kernel.dmesg_restrict=0, or usermod "
        "-aG systemd-journal; docker run --cap-add SYSLOG --device /dev/kmsg"
    )
    if told is None:
        yield silent("the kernel log", READER_S)
    elif not told.error:
        yield Said("ok", "the kernel log can be read")
    elif not told.journal_error:
        yield Said("warn", "the kernel log is to be had from the journal only", fix)
    else:
        yield Said("warn", told.error.partition(" (")[0], fix)


def kernel_pids(readings: Readings) -> Iterator[Said]:
    """The kernel prints pids of the node; in a PID namespace ranks have others."""
    log, system = readings.kernel_log, readings.system
    if log and system and not log.error and not system.initial_pids:
        yield Said(
            "warn",
            "pids in the kernel log are not those of this PID namespace",
            "docker run --pid=host; hostPID: true",
        )


def oom_counters(readings: Readings) -> Iterator[Said]:
    """memory.events tells that a rank was killed for memory, and needs no rights."""
    told = readings.cgroups
    if told is None:
        return
    version = f"cgroup {told.version}" if told.version else "no cgroup"
    if told.counted:
        yield Said("ok", f"OOM kills are counted ({version})")
    else:
        yield Said(
            "warn",
            f"OOM kills are not counted here ({version})",
            "give the unit a memory cgroup: MemoryAccounting=yes",
        )


def rank_cgroups(readings: Readings) -> Iterator[Said]:
    """A cgroup for each rank says which one was killed, and ends all of it at once.

    It needs a cgroup of version 2 that was handed over (Delegate=yes).
    """
    told = readings.cgroups
    if told is None:
        return
    if told.divisible:
        yield Said("ok", "ranks get cgroups of their own")
    else:
        yield Said(
            "warn",
            f"ranks cannot have cgroups of their own: {told.why_not}",
            "Delegate=yes in the unit; systemd-run --user --scope -p Delegate=yes",
        )


def stacks(readings: Readings) -> Iterator[Said]:
    """py-spy reads where a hanging rank is, if Yama lets it.

    Else ranks write their stacks themselves, which one that is stuck in C does not.
    """
    system = readings.system
    if system is None:
        return
    scope = system.ptrace_scope or 0
    if not system.py_spy:
        yield Said("warn", "py-spy is not installed", "pip install py-spy")
    elif scope and not system.capabilities >> SYS_PTRACE & 1:
        yield Said(
            "warn",
            f"py-spy may not look at ranks: {_SCOPES.get(scope, 'Yama forbids it')} "
            f"(ptrace_scope {scope})",
            "sysctl kernel.yama.ptrace_scope=0; docker run --cap-add SYS_PTRACE",
        )
    else:
        yield Said("ok", "py-spy may look at ranks")


def pressure(readings: Readings) -> Iterator[Said]:
    """How long tasks wait for memory and processors: it tells slow from stuck."""
    if readings.system and not readings.system.pressure:
        yield Said("warn", "the kernel tells of no pressure", "boot with psi=1")


CHECKS: Final = (
    Check("kernel-log", "What dsup will see", kernel_log),
    Check("kernel-pids", "What dsup will see", kernel_pids),
    Check("oom-counters", "What dsup will see", oom_counters),
    Check("rank-cgroups", "What dsup will see", rank_cgroups),
    Check("stacks", "What dsup will see", stacks),
    Check("pressure", "What dsup will see", pressure),
)
