"""Facts about processes, read from /proc; whatever cannot be read is absent."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

TICK_S: Final = 1.0 / os.sysconf("SC_CLK_TCK")
"""What /proc counts time in, seconds."""

_PF_EXITING: Final = 0x4
_GENERATIONS: Final = 64
_KERNEL_FRAMES_MAX: Final = 32
_UNKNOWN_STATUS: Final = 1 << 8  # as if it had ended with exit code 1
# Fields of /proc/PID/stat, counted from the state, which is the third.
_UTIME, _STIME, _START, _EXIT_CODE = 11, 12, 19, 49
_INITIAL_PID_NAMESPACE: Final = 0xEFFFFFFC  # its inode, PROC_PID_INIT_INO


class Stat(NamedTuple):
    """Some fields of /proc/PID/stat.

    Attributes:
        start: when the process was made, clock ticks since boot; with its pid, this
            tells a process from a later one.
    """

    comm: str
    state: str
    ppid: int
    session: int
    flags: int
    start: int


def read_bytes(path: str) -> bytes:
    """Return the content of a kernel's file; empty when it is not to be had."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        parts = list(iter(lambda: os.read(fd, 65_536), b""))
    except OSError:
        return b""
    finally:
        os.close(fd)
    return b"".join(parts)


def read_text(path: str) -> str:
    """Return the content of a file below /proc; empty when it is not to be had."""
    return read_bytes(path).decode("utf-8", "replace")


def boot_id() -> str:
    """Return the kernel's name for the time since this machine was booted."""
    return read_text("/proc/sys/kernel/random/boot_id").strip()


def is_own() -> bool:
    """Return whether /proc shows the pid namespace of this process."""
    try:
        return os.readlink("/proc/self") == str(os.getpid())
    except OSError:
        return False


def in_initial_namespace() -> bool:
    """Return whether pids here are those that the kernel prints in its log."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino == _INITIAL_PID_NAMESPACE
    except OSError:
        return False


def stat(pid: int) -> Stat | None:
    """Return a process's state; None if it does not exist (any more)."""
    text = read_text(f"/proc/{pid}/stat")
    comm, bracket, rest = text.partition("(")[2].rpartition(")")
    fields = rest.split()
    if not bracket or len(fields) <= _START:
        return None
    ppid, session, flags, start = (int(fields[i]) for i in (1, 3, 6, _START))
    return Stat(comm, fields[0], ppid, session, flags, start)


def cpu_s(fields: Sequence[bytes]) -> float:
    """Return the processor time of a process or thread so far, seconds.

    Args:
        fields: of its stat file, from the state on.
    """
    return (int(fields[_UTIME]) + int(fields[_STIME])) * TICK_S


def wchan(pid: int) -> str:
    """Return the kernel function a process sleeps in; empty if that is not told."""
    name = read_text(f"/proc/{pid}/wchan").strip()
    return "" if name == "0" else name


def wait_status(pid: int) -> int:
    """Return a zombie's wait status, for one that its parent may not collect yet.

    Of another user's process the kernel does not tell it; that is no success.
    """
    try:
        told = os.geteuid() in {0, os.stat(f"/proc/{pid}").st_uid}
    except FileNotFoundError:
        told = False
    if not told:
        return _UNKNOWN_STATUS
    fields = read_text(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return int(fields[_EXIT_CODE]) if len(fields) > _EXIT_CODE else _UNKNOWN_STATUS


def is_dying(pid: int) -> bool:
    """Return whether the kernel is already taking the process down."""
    found = stat(pid)
    return found is not None and bool(found.flags & _PF_EXITING)


def catches(pid: int, signum: int) -> bool:
    """Return whether a process has a handler for a signal (its SigCgt bit)."""
    for line in read_text(f"/proc/{pid}/status").splitlines():
        if line.startswith("SigCgt:"):
            return bool(int(line.split()[1], 16) >> (signum - 1) & 1)
    return False


def takes(pid: int, signum: int) -> bool:
    """Return whether a process has a handler for a signal that none waits for yet.

    One that is still pending was not answered: a second would be answered twice later.
    """
    told = dict(
        line.split(":\t", 1)
        for line in read_text(f"/proc/{pid}/status").splitlines()
        if ":\t" in line
    )
    caught, waiting = (
        int(told.get(name, "0"), 16) >> (signum - 1) & 1
        for name in ("SigCgt", "ShdPnd")
    )
    return bool(caught and not waiting)


def system_call(pid: int) -> str:
    """Return the number and arguments of the call a process is in; empty if unknown."""
    return read_text(f"/proc/{pid}/syscall").strip()


def kernel_stack(pid: int) -> list[str]:
    """Return where in the kernel a process sleeps, the innermost first; root's only."""
    lines = read_text(f"/proc/{pid}/stack").splitlines()
    return [line.removeprefix("[<0>] ") for line in lines[:_KERNEL_FRAMES_MAX]]


def holds(pid: int, fd: int, file: os.stat_result) -> bool:
    """Return whether a process has a file, and no other, at one of its descriptors."""
    try:
        found = os.stat(f"/proc/{pid}/fd/{fd}")
    except OSError:
        return False
    return (found.st_dev, found.st_ino) == (file.st_dev, file.st_ino)


def thread_ids(pid: int) -> list[int]:
    """Return the ids of a process's threads; of a zombie, its own pid."""
    try:
        return list(map(int, os.listdir(f"/proc/{pid}/task")))
    except OSError:
        return []


def main_children(pid: int) -> list[int]:
    """Return the children that a process's main thread has forked, zombies included.

    Of the others nothing is said: looking at every thread costs much more.
    """
    return list(map(int, read_bytes(f"/proc/{pid}/task/{pid}/children").split()))


def children(pid: int) -> list[int]:
    """Return the children of a process, zombies included."""
    found: list[int] = []
    tasks = thread_ids(pid)
    if not tasks:
        return found
    for task in tasks:
        path = f"/proc/{pid}/task/{task}/children"
        found += map(int, read_text(path).split())
    return found or _children_by_parent(pid)


def _children_by_parent(pid: int) -> list[int]:
    """Return the children on a kernel without /proc/PID/task/TID/children."""
    if os.path.exists(f"/proc/self/task/{os.getpid()}/children"):
        return []
    return [child for child in every_pid() if (s := stat(child)) and s.ppid == pid]


def every_pid() -> list[int]:
    """Return the pids of all processes that there are."""
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []


def descendants(pid: int, *, without: Iterable[int] = ()) -> list[int]:
    """Return everything below a process, parents first, zombies included.

    At most 64 generations: processes that fork and end faster than they are looked at
    would be followed for ever. What is deeper moves up when its parents have ended.

    Args:
        pid: the root, itself not in the answer.
        without: children whose branches are left out.
    """
    left_out = set(without)
    found: list[int] = []
    generation = [pid]
    for _ in range(_GENERATIONS):
        born = [child for parent in generation for child in children(parent)]
        generation = [child for child in born if child not in left_out]
        found += generation
    return found


def is_alive(pid: int) -> bool:
    """Return whether a process exists and is more than a zombie."""
    found = stat(pid)
    if found is None:
        return False
    # A process whose main thread alone has ended looks like a zombie, and runs.
    return found.state not in {"Z", "X"} or len(thread_ids(pid)) > 1
