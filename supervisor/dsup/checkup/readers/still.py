"""Whether a process moves: one look shows where it is, only several that it stays.

A parent in vfork and a reader of a slow disk are in state D as well, for a moment. What
is looked at is the main thread: another one may go on beside it, as one that waits for
events does, and ``/proc/PID/stat`` adds up the times of all.

Source: proc(5)
"""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import Final, NamedTuple

from dsup.linux.proc import read_text

WATCH_S: Final = 8.0
"""NVIDIA's driver starts a GPU in seconds, while all others wait for its lock."""

_ROUND_S: Final = 0.1
_UNINTERRUPTIBLE: Final = "D"
_TIMES: Final = slice(11, 13)  # fields 14 and 15 of stat, from the state
_START: Final = slice(19, 20)
_SWITCHES: Final = "voluntary_ctxt_switches:"
_DRIVER: Final = "[nvidia"


class Glimpse(NamedTuple):
    """Where a main thread is: two that are equal show that it has not moved.

    Attributes:
        state: as in ``ps``.
        counts: start, and ticks of processor time.
        switches: how often it went to sleep.
    """

    state: str
    counts: tuple[str, ...]
    switches: str


def glimpse(pid: int, root: str = "") -> Glimpse | None:
    """Return where the main thread of a process is; None if there is none.

    Args:
        pid: the process.
        root: stands for ``/``.
    """
    thread = f"{root}/proc/{pid}/task/{pid}"
    fields = read_text(f"{thread}/stat").rpartition(")")[2].split()
    if not fields:
        return None
    told = read_text(f"{thread}/status").partition(f"\n{_SWITCHES}")[2]
    counts = (*fields[_START], *fields[_TIMES])
    return Glimpse(fields[0], counts, "".join(told.split()[:1]))


def stuck(
    pids: Collection[int], root: str = "", watch_s: float = WATCH_S
) -> list[tuple[int, float, bool]]:
    """Return those that stay in state D and do not move.

    It returns as soon as all have moved.

    Args:
        pids: of processes.
        root: stands for ``/``.
        watch_s: how long they are watched.

    Returns:
        pid, seconds, and whether it waits in NVIDIA's driver, as far as that is told.
    """
    began_s = time.monotonic()
    seen = {pid: glimpse(pid, root) for pid in pids}
    left = {
        pid: was for pid, was in seen.items() if was and was.state == _UNINTERRUPTIBLE
    }
    while left and time.monotonic() < began_s + watch_s:
        time.sleep(min(_ROUND_S, watch_s))
        left = {pid: was for pid, was in left.items() if glimpse(pid, root) == was}
    seconds = time.monotonic() - began_s
    return [
        (pid, seconds, _DRIVER in read_text(f"{root}/proc/{pid}/stack")) for pid in left
    ]
