"""Limits that ranks inherit from whoever starts dsup. Pure.

Sources: getrlimit(2), and https://docs.kernel.org/admin-guide/cgroup-v2.html (pids)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from dsup.checkup.checks.network import uses_infiniband
from dsup.checkup.finding import Check, Said, silent
from dsup.checkup.readings import READER_S, Readings

IPC_LOCK: Final = 14
"""CAP_IPC_LOCK: memlock does not concern who has it."""

_MIB: Final = 1 << 20
_NOFILE: Final = 4096
_TASKS_EACH: Final = 500
_TASKS_EACH_BAD: Final = 5
"""A rank of CPU has hardly more threads, so with fewer it certainly fails."""

_LAST_SCORE: Final = 500
_NEVER: Final = -1000


def memlock(readings: Readings) -> Iterator[Said]:
    """InfiniBand pins the memory it sends from, as far as ulimit -l allows.

    Ranks of one node need it only where they have no other way, so it is never bad.
    """
    limits, network, system = readings.limits, readings.network, readings.system
    if limits is None:
        yield silent("getrlimit", READER_S)
        return
    ports = bool(network and network.ports)
    ports = ports and uses_infiniband(readings.asked.environment)
    free = bool(system and system.capabilities >> IPC_LOCK & 1)
    if limits.memlock is None or free or not ports:
        shown = "unlimited" if limits.memlock is None else _kib(limits.memlock)
        yield Said("ok", f"memlock is {shown}{'' if ports else ', without InfiniBand'}")
        return
    yield Said(
        "warn",
        f"memlock is {_kib(limits.memlock)}: InfiniBand may not pin its memory",
        "ulimit -l unlimited; LimitMEMLOCK=infinity; docker run --ulimit memlock=-1",
    )


def nofile(readings: Readings) -> Iterator[Said]:
    """Open files of one process: DataLoader passes tensors as descriptors.

    Threshold: 4,096; the usual 1,024 is used up by a few workers.
    """
    limits = readings.limits
    if limits is None:
        return
    if limits.nofile is not None and limits.nofile < _NOFILE:
        hard = "unlimited" if limits.nofile_hard is None else limits.nofile_hard
        yield Said(
            "warn",
            f"a process may open {limits.nofile} files (hard limit {hard})",
            "ulimit -n 65536; LimitNOFILE=1048576",
        )
    else:
        yield Said("ok", f"a process may open {limits.nofile or 'any number of'} files")


def nproc(readings: Readings) -> Iterator[Said]:
    """Processes and threads of this user, against ulimit -u; root has no such limit.

    Thresholds: 500 that may still be made for each rank; bad below 5.
    """
    limits = readings.limits
    if limits is None or limits.tasks is None:
        return
    if limits.nproc is None or limits.root:
        yield Said("ok", "no limit of processes a user")
        return
    left = limits.nproc - limits.tasks
    text = f"{left} of {limits.nproc} processes and threads of this user are left"
    yield _tasks(readings, left, text, "ulimit -u unlimited; LimitNPROC=infinity")


def pids_max(readings: Readings) -> Iterator[Said]:
    """Processes and threads of the cgroup, against pids.max (TasksMax= of systemd).

    Thresholds: 500 that may still be made for each rank; bad below 5.
    """
    told = readings.cgroups
    if told is None:
        yield silent("/sys/fs/cgroup", READER_S)
    elif told.pids_left is None:
        yield Said("ok", "no limit of processes in the cgroup")
    else:
        text = f"{told.pids_left} of {told.pids_max} tasks of the cgroup are left"
        fix = f"TasksMax=infinity; docker run --pids-limit -1 ({told.pids_where})"
        yield _tasks(readings, told.pids_left, text, fix)


def _tasks(readings: Readings, left: int, text: str, fix: str) -> Said:
    if left < _TASKS_EACH_BAD * readings.ranks:
        return Said("bad", text, fix)
    if left < _TASKS_EACH * readings.ranks:
        return Said("warn", text, fix)
    return Said("ok", text)


def core_dumps(readings: Readings) -> Iterator[Said]:
    """A rank's core dump is as large as the rank, and takes as long to write.

    Only where the limit is unlimited and the kernel writes them into files itself.
    """
    limits, system = readings.limits, readings.system
    if limits is None or system is None:
        return
    files = bool(system.core_pattern) and not system.core_pattern.startswith("|")
    if limits.core is None and files:
        yield Said(
            "warn",
            f"a rank that crashes leaves its whole memory in {system.core_pattern}",
            "ulimit -c 0; LimitCORE=0",
        )


def oom_group(readings: Readings) -> Iterator[Said]:
    """memory.oom.group: an OOM kill of one process ends all of the cgroup.

    Then dsup goes with the rank, and nobody is left to say why. systemd sets it for
    OOMPolicy=kill, and Kubernetes for containers since 1.28.
    """
    told = readings.cgroups
    if told and told.oom_group:
        yield Said(
            "warn",
            f"an OOM kill of one rank takes dsup and all ranks with it: "
            f"{told.oom_group} is 1",
            f"OOMPolicy=continue; echo 0 > {told.oom_group}; in Kubernetes "
            "singleProcessOOMKill: true",
        )


def oom_score(readings: Readings) -> Iterator[Said]:
    """Whom the kernel would kill first: the ranks, before all others, or never.

    Thresholds: 500, as Kubernetes gives to pods without requests; -1000 is never.
    """
    score = readings.system.oom_score_adj if readings.system else None
    if score is None:
        return
    if score >= _LAST_SCORE:
        text = f"the kernel kills these processes first (oom_score_adj {score})"
        fix = "OOMScoreAdjust=0; in Kubernetes give requests and limits"
        yield Said("warn", text, fix)
    elif score == _NEVER:
        text = (
            "the kernel may not kill these processes for memory (oom_score_adj -1000)"
        )
        yield Said("warn", text, "OOMScoreAdjust=0: else it kills sshd for the ranks")


CHECKS: Final = (
    Check("memlock", "Limits", memlock),
    Check("nofile", "Limits", nofile),
    Check("nproc", "Limits", nproc),
    Check("pids-max", "Limits", pids_max),
    Check("core-dumps", "Limits", core_dumps),
    Check("oom-group", "Limits", oom_group),
    Check("oom-score", "Limits", oom_score),
)


def _kib(size: int) -> str:
    return f"{size >> 10} KiB" if size < _MIB else f"{size >> 20} MiB"
