"""What /proc, /sys and the kernel's calls tell of the node and of this process.

Sources: proc(5), capabilities(7), adjtimex(2), and
https://docs.kernel.org/admin-guide/LSM/Yama.html
"""

from __future__ import annotations

import os
import resource
import struct
from collections.abc import Mapping
from typing import Final

from dsup.checkup.readings import Clock, Limits, System
from dsup.linux import cgroup, proc, spy
from dsup.linux.proc import read_text

_MARKS: Final = (
    ("/.dockerenv", "Docker"),
    ("/run/.containerenv", "Podman"),
    ("/run/systemd/container", "a container of systemd's"),
)
_TIMEX_BYTES: Final = 256
_TIMEX: Final = struct.Struct("@I4xqqqqi")
"""modes, offset, freq, maxerror, esterror, status: the beginning of struct timex."""

_UNSYNCHRONISED: Final = 0x40
_NAMES_MAX_CHARS: Final = 200


def system(environment: Mapping[str, str], root: str = "") -> System:
    """Return what there is to know of the node and of this process."""
    memory = _memory(root)
    return System(
        container=_container(environment, root),
        first=read_text(f"{root}/proc/1/comm").strip(),
        initial_pids=proc.in_initial_namespace(),
        processors=len(os.sched_getaffinity(0)),
        quota=_quota(root),
        memory_kb=memory.get("MemTotal"),
        available_kb=memory.get("MemAvailable"),
        swap_kb=memory.get("SwapTotal"),
        swap_free_kb=memory.get("SwapFree"),
        oom_score_adj=_number(f"{root}/proc/self/oom_score_adj"),
        pressure=os.path.exists(f"{root}/proc/pressure/memory"),
        ptrace_scope=_number(f"{root}/proc/sys/kernel/yama/ptrace_scope"),
        capabilities=_capabilities(root),
        core_pattern=read_text(f"{root}/proc/sys/kernel/core_pattern").strip()[
            :_NAMES_MAX_CHARS
        ],
        py_spy=spy.find(environment.get("PATH", "")),
    )


def limits() -> Limits:
    """Return the soft limits of this process."""
    return Limits(
        memlock=_limit(resource.RLIMIT_MEMLOCK)[0],
        nofile=_limit(resource.RLIMIT_NOFILE)[0],
        nofile_hard=_limit(resource.RLIMIT_NOFILE)[1],
        nproc=_limit(resource.RLIMIT_NPROC)[0],
        core=_limit(resource.RLIMIT_CORE)[0],
        tasks=_tasks_of(os.getuid()),
        root=os.geteuid() == 0,
    )


def clock() -> Clock:
    """Return what the kernel knows of its clock; it is asked, and not set."""
    import ctypes

    buffer = ctypes.create_string_buffer(_TIMEX_BYTES)
    if ctypes.CDLL(None).adjtimex(buffer) < 0:
        return Clock()
    _, _, _, error_us, _, status = _TIMEX.unpack_from(buffer)
    return Clock(not status & _UNSYNCHRONISED, int(error_us))


def _container(environment: Mapping[str, str], root: str) -> str:
    if "KUBERNETES_SERVICE_HOST" in environment:
        return "Kubernetes"
    for path, name in _MARKS:
        if os.path.exists(f"{root}{path}"):
            return name
    return environment.get("container", "")[:_NAMES_MAX_CHARS]


def _memory(root: str) -> dict[str, int]:
    """Return /proc/meminfo, KiB by name."""
    rows = (line.split() for line in read_text(f"{root}/proc/meminfo").splitlines())
    return {row[0].rstrip(":"): int(row[1]) for row in rows if row[1:2] and _is(row[1])}


def _quota(root: str) -> float | None:
    """Return how many processors the cgroup may use: the lowest of all limits."""
    table = cgroup.mounts(root)
    told = cgroup.membership(os.getpid() if not root else 1, root)
    found = []
    group = cgroup.home("", told, table)
    for directory in group.chain if group else ():
        words = read_text(f"{directory}/cpu.max").split()
        if len(words) > 1 and _is(words[0]) and _is(words[1]) and int(words[1]):
            found.append(int(words[0]) / int(words[1]))
    older = cgroup.home("cpu", told, table)
    for directory in older.chain if older else ():
        quota = _number(f"{directory}/cpu.cfs_quota_us")
        period = _number(f"{directory}/cpu.cfs_period_us")
        if quota and period and quota > 0:
            found.append(quota / period)
    return min(found, default=None)


def _capabilities(root: str) -> int:
    _, _, rest = read_text(f"{root}/proc/self/status").partition("\nCapEff:")
    word = rest.split()[:1]
    return int(word[0], 16) if word else 0


def _limit(which: int) -> tuple[int | None, int | None]:
    soft, hard = resource.getrlimit(which)
    unlimited = resource.RLIM_INFINITY
    return None if soft == unlimited else soft, None if hard == unlimited else hard


def _tasks_of(uid: int) -> int:
    """Return how many processes and threads a user has, as far as /proc shows."""
    count = 0
    for pid in proc.every_pid():
        try:
            if os.stat(f"/proc/{pid}").st_uid == uid:
                count += len(proc.thread_ids(pid))
        except OSError:
            continue
    return count


def _number(path: str) -> int | None:
    text = read_text(path).strip()
    return int(text) if _is(text.removeprefix("-")) else None


def _is(text: str) -> bool:
    return text.isascii() and text.isdecimal()
