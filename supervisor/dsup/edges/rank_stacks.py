"""The stacks of one rank, asked for from outside of the run, without py-spy.

The rank writes them into the memory file that its agent gave it, at the same signals,
on from where the last ones end. The agent begins anew at each capture; where it has
none to take, the file is rewound here before it is full.
"""

from __future__ import annotations

import os
import signal
import time
from typing import Final

from dsup.linux import libc, proc
from dsup.linux.stack_signal import DEAF, has_main, is_whole
from dsup_runtime import contract

_LOOK_S: Final = 0.01
_LINK: Final = f"/memfd:{contract.STACKS_NAME} (deleted)"
_ROOM_BYTES: Final = contract.STACKS_MAX_BYTES // 2
"""From here on it is begun anew."""

_FULL_BYTES: Final = contract.STACKS_MAX_BYTES - 4096
_PIDFD_GETFD: Final = 438
"""The number of the system call, the same on every architecture."""


def ask(pid: int, number: int, timeout_s: float) -> bytes:
    """Return what a rank writes of itself; nothing if it cannot.

    Args:
        pid: the rank.
        number: where it has its memory file.
        timeout_s: how long it may take.
    """
    until_s = time.monotonic() + timeout_s
    try:
        with open(f"/proc/{pid}/fd/{number}", "rb") as file:
            if os.readlink(f"/proc/{pid}/fd/{number}") != _LINK:
                return b""
            asked = file.fileno(), pid, number, until_s
            dump = _told(contract.STACKS_SIGNAL, *asked)
            if not dump or has_main(dump):
                return dump
            return _told(contract.MAIN_STACK_SIGNAL, *asked) + dump
    except OSError:
        return b""


def _told(signum: int, fd: int, pid: int, number: int, until_s: float) -> bytes:
    """Return what a rank writes at a signal; nothing if it does not take it."""
    with open(os.pidfd_open(pid)) as process:
        if not _hears(pid, signum):
            return b""
        if _position(pid, number) > _ROOM_BYTES:
            _rewind(process.fileno(), number)
        start = _position(pid, number)
        signal.pidfd_send_signal(process.fileno(), signum)
        return _written(fd, (pid, number), start, until_s)


def _hears(pid: int, signum: int) -> bool:
    found = proc.stat(pid)
    ready = found is not None and found.state not in DEAF
    return ready and proc.takes(pid, signum)


def _written(fd: int, whose: tuple[int, int], start: int, until_s: float) -> bytes:
    """Return a dump that does not grow any more."""
    before = start
    while time.monotonic() < until_s:
        time.sleep(_LOOK_S)
        end = min(_position(*whose), contract.STACKS_MAX_BYTES)
        if start < end == before:
            dump = os.pread(fd, end - start, start)
            if is_whole(dump, _FULL_BYTES - start):
                return dump
        before = end
    return b""


def _position(pid: int, number: int) -> int:
    """Return from where on a process writes into one of its files."""
    words = proc.read_text(f"/proc/{pid}/fdinfo/{number}").split()
    return int(words[1]) if words[:1] == ["pos:"] else 0


def _rewind(process: int, number: int) -> None:
    """Have a process write from the beginning of one of its files on.

    Only who may trace it can: where that is refused, the file fills up, and is empty
    again after the agent's next capture.
    """
    fd = libc.call("syscall", _PIDFD_GETFD, process, number, 0)
    if fd >= 0:
        os.lseek(fd, 0, os.SEEK_SET)
        os.close(fd)
