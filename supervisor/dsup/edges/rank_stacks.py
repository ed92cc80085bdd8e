"""The stacks of one rank, asked for from outside of the run, without py-spy.

The rank writes them into the memory file that its agent gave it, at the same signal.
Where the file's end is can be seen and not changed: that is for the agent.
"""

from __future__ import annotations

import os
import signal
import time
from typing import Final

from dsup.linux import proc
from dsup_runtime import contract

_LOOK_S: Final = 0.01
_LINK: Final = f"/memfd:{contract.STACKS_NAME} (deleted)"
_MAIN: Final = b"Current thread"
_DEAF: Final = frozenset("TtDZX")


def ask(pid: int, number: int, timeout_s: float) -> bytes:
    """Return what a rank writes of itself; nothing if it cannot.

    Args:
        pid: the rank.
        number: where it has its memory file.
        timeout_s: how long it may take.
    """
    path = f"/proc/{pid}/fd/{number}"
    try:
        with open(path, "rb") as file, open(os.pidfd_open(pid)) as process:
            if os.readlink(path) != _LINK or not _hears(pid):
                return b""
            start = _position(pid, number)
            signal.pidfd_send_signal(process.fileno(), contract.STACKS_SIGNAL)
            until_s = time.monotonic() + timeout_s
            return _written(file.fileno(), (pid, number), start, until_s)
    except OSError:
        return b""


def _hears(pid: int) -> bool:
    found = proc.stat(pid)
    ready = found is not None and found.state not in _DEAF
    return ready and proc.takes(pid, contract.STACKS_SIGNAL)


def _written(fd: int, whose: tuple[int, int], start: int, until_s: float) -> bytes:
    """Return a dump that does not grow any more."""
    before = start
    while time.monotonic() < until_s:
        time.sleep(_LOOK_S)
        end = min(_position(*whose), contract.STACKS_MAX_BYTES)
        if start < end == before:
            dump = os.pread(fd, end - start, start)
            if _MAIN in dump:
                return dump
        before = end
    return b""


def _position(pid: int, number: int) -> int:
    """Return from where on a process writes into one of its files."""
    words = proc.read_text(f"/proc/{pid}/fdinfo/{number}").split()
    return int(words[1]) if words[:1] == ["pos:"] else 0
