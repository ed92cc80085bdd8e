"""The heartbeat page, as the agent holds it: a sealed memory file the ranks inherit."""

from __future__ import annotations

import fcntl
import mmap
import os
from typing import Final

from dsup_runtime import contract

_F_ADD_SEALS: Final = 1033
_SEAL_SEAL_SHRINK_GROW: Final = 0x1 | 0x2 | 0x4
_HIGH_FD: Final = 64
_STEP_MAX: Final = 2**53


class Page:
    """The page of one attempt; nothing in it is trusted.

    Args:
        attempt: written into the header, so that a worker of another attempt stays out.
        slots: local ranks.

    Attributes:
        fd: the memory file, above every number a rank could find it at.
    """

    def __init__(self, attempt: int, slots: int) -> None:
        flags = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
        low = os.memfd_create("dsup-heartbeats", flags)
        self.fd = fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, _HIGH_FD)
        os.close(low)
        size = contract.page_bytes(slots)
        os.ftruncate(self.fd, size)
        # A worker that truncated the mapped file would kill the agent with SIGBUS.
        fcntl.fcntl(self.fd, _F_ADD_SEALS, _SEAL_SEAL_SHRINK_GROW)
        self._map = mmap.mmap(self.fd, size)
        self._words = memoryview(self._map).cast("q")
        self._slots = slots
        self._words[contract.HEADER_MAGIC] = contract.MAGIC
        self._words[contract.HEADER_ATTEMPT] = attempt
        self._words[contract.HEADER_STOP_STEP] = contract.NO_STEP
        self._words[contract.HEADER_SLOTS] = slots
        for slot in range(slots):
            self._set(slot, contract.SLOT_STEP, contract.NO_STEP)

    def step(self) -> int | None:
        """Return the step that every reporting rank has finished; None without any."""
        reported = self._column(contract.SLOT_STEP)
        steps = [step for step in reported if 0 <= step < _STEP_MAX]
        return min(steps, default=None)

    def copy(self) -> bytes:
        """Return the whole page as it is now."""
        return bytes(self._map)

    def mark_dead(self, slot: int) -> None:
        """Tell the other ranks that this one has ended."""
        self._set(slot, contract.SLOT_DEAD, 1)

    def close(self) -> None:
        """Give the page up; ranks that still map it keep their mapping."""
        self._words.release()
        self._map.close()
        os.close(self.fd)

    def _set(self, slot: int, word: int, value: int) -> None:
        self._words[contract.slot_offset(slot) + word] = value

    def _column(self, word: int) -> list[int]:
        first = contract.slot_offset(0) + word
        return self._words[first :: contract.SLOT_WORDS].tolist()
