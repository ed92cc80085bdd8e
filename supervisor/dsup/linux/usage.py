"""How much of a processor a process takes, and how much memory: from /proc/PID/stat."""

from __future__ import annotations

import os
from typing import Final, NamedTuple

from dsup.linux import proc

_START, _RSS = 19, 21  # counted from the state
_PAGE_KIB: Final = os.sysconf("SC_PAGE_SIZE") // 1024


class Usage(NamedTuple):
    """One reading.

    Attributes:
        cpu_s: processor time so far, seconds.
        made_s: when the process was made, CLOCK_BOOTTIME, seconds.
        rss_kb: resident memory, KiB.
    """

    cpu_s: float
    made_s: float
    rss_kb: int


def read(pid: int) -> Usage | None:
    """Return what a process has used; None if it does not exist (any more)."""
    fields = proc.read_bytes(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    if len(fields) <= _RSS:
        return None
    made_s = int(fields[_START]) * proc.TICK_S
    return Usage(proc.cpu_s(fields), made_s, int(fields[_RSS]) * _PAGE_KIB)
