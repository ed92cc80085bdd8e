"""The heartbeat page, as the agent holds it: a sealed memory file the ranks inherit.

With ``--heartbeat file|tcp`` the ranks do not inherit it. A carrier then brings their
slots into it and the agent's words to them, so that whoever uses the page, or saves it,
need not know how the ranks are reached.
"""

from __future__ import annotations

import fcntl
import mmap
import os
from collections.abc import Callable
from typing import Final, Protocol

from dsup_runtime import contract

_F_ADD_SEALS: Final = 1033
_SEAL_SEAL_SHRINK_GROW: Final = 0x1 | 0x2 | 0x4
_HIGH_FD: Final = 64
_STEP_MAX: Final = 2**53
_REASON_BYTES: Final = 8 * contract.WORD_BYTES


class Carrier(Protocol):
    """Brings slots here and the agent's words to the ranks; never waits for a rank.

    Attributes:
        where: what ``DSUP_HEARTBEAT`` says of it, but for the slot.
        token: what proves a rank to be one; empty where nothing has to.
    """

    where: str
    token: str

    def pull(self, words: memoryview[int]) -> None:
        """Store what the ranks have told into the page's slots."""

    def push(self, words: memoryview[int]) -> None:
        """Tell the ranks the header and which ranks are dead."""

    def close(self) -> None:
        """Let everything go."""


class Page:
    """The page of one attempt; nothing in it is trusted.

    Args:
        attempt: written into the header, so that a worker of another attempt stays out.
        slots: local ranks.

    Attributes:
        fd: what the ranks inherit, above every number a rank could find it at; -1 for
            nothing.
        kept_fd: a file that holds the page, as it was when it was last read.
        carrier: how the ranks are reached; None where they inherit the page.
    """

    def __init__(self, attempt: int, slots: int) -> None:
        flags = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
        low = os.memfd_create("dsup-heartbeats", flags)
        try:
            self.kept_fd = fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, _HIGH_FD)
        finally:
            os.close(low)
        self.fd = self.kept_fd
        self.carrier: Carrier | None = None
        size = contract.page_bytes(slots)
        os.ftruncate(self.kept_fd, size)
        # A worker that truncated the mapped file would kill the agent with SIGBUS.
        fcntl.fcntl(self.kept_fd, _F_ADD_SEALS, _SEAL_SEAL_SHRINK_GROW)
        self._map = mmap.mmap(self.kept_fd, size)
        self._words = memoryview(self._map).cast("q")
        self._slots = slots
        self._words[contract.HEADER_MAGIC] = contract.MAGIC
        self._words[contract.HEADER_ATTEMPT] = attempt
        self._words[contract.HEADER_STOP_STEP] = contract.NO_STEP
        self._words[contract.HEADER_SLOTS] = slots
        for slot in range(slots):
            self._set(slot, contract.SLOT_STEP, contract.NO_STEP)

    def carry(self, make: Callable[[bytes], Carrier]) -> None:
        """Have the ranks reached by a carrier instead of inheriting the page.

        Args:
            make: makes it from the page as it is; if that fails, nothing changes.
        """
        self.carrier = make(bytes(self._map))
        self.fd = -1

    @property
    def on_disk(self) -> bool:
        """Whether the ranks themselves write into a file of the run directory."""
        return self.carrier is not None and self.carrier.where.startswith("file:")

    def step(self) -> int | None:
        """Return the step that every reporting rank has finished; None without any."""
        reported = self._column(contract.SLOT_STEP)
        steps = [step for step in reported if 0 <= step < _STEP_MAX]
        return min(steps, default=None)

    def finished(self) -> tuple[int, float] | None:
        """Return the step that every reporting rank has finished, and when it was.

        The time is the agent's clock, seconds, in the ranks' own words: 0 for never.
        """
        steps, times = self.steps(), self._column(contract.SLOT_PROGRESS_NS)
        if not steps:
            return None
        least = min(steps.values())
        made_ns = max(times[slot] for slot, step in steps.items() if step == least)
        return least, made_ns * 1e-9

    def steps(self) -> dict[int, int]:
        """Return the last step of each slot that tells its steps."""
        reported = enumerate(self._column(contract.SLOT_STEP))
        return {slot: step for slot, step in reported if 0 <= step < _STEP_MAX}

    def made_s(self) -> dict[int, float]:
        """Return when each slot has made its last step, agent clock, seconds."""
        times = enumerate(self._column(contract.SLOT_PROGRESS_NS))
        return {slot: made_ns * 1e-9 for slot, made_ns in times if made_ns > 0}

    def phases(self) -> dict[int, str]:
        """Return the phase of each slot whose worker has ever sent a heartbeat."""
        beats = self._column(contract.SLOT_HEARTBEAT_NS)
        told = enumerate(self._column(contract.SLOT_PHASE))
        names = dict(enumerate(contract.PHASES))
        return {slot: names[n] for slot, n in told if beats[slot] and n in names}

    def self_stopping(self) -> set[int]:
        """Return the slots whose workers ask at every step whether to stop."""
        flags = self._column(contract.SLOT_FLAGS)
        return {
            slot for slot, flag in enumerate(flags) if flag & contract.FLAG_STOPS_ITSELF
        }

    def wanted(self) -> dict[int, int]:
        """Return which slots want a stop: of which kind, as in ``STOP_KINDS``."""
        kinds = range(1, len(contract.STOP_KINDS))
        wanted = enumerate(self._column(contract.SLOT_WANTED))
        return {slot: kind for slot, kind in wanted if kind in kinds}

    def checks(self) -> list[int]:
        """Return the last check that each worker came to, in its own words."""
        return self._column(contract.SLOT_SEQUENCE)

    def freeze(self, until_s: float) -> None:
        """Have each worker wait at its next check for ``publish``.

        Args:
            until_s: when those that have not left get SIGTERM, agent clock, seconds.
        """
        self._words[contract.HEADER_STOP_DEADLINE_NS] = int(until_s * 1e9)
        self._words[contract.HEADER_FREEZE] = 1
        self._tell()

    def publish(self, check: int, kind: str, rank: int, reason: str) -> None:
        """Have all workers leave at the same check.

        Args:
            check: its number, from 1; ``contract.AT_ONCE`` for at once.
            kind: a word of ``contract.STOP_KINDS``.
            rank: who wanted it; -1 for nobody in particular.
            reason: cut at 64 bytes.
        """
        words = self._words
        words[contract.HEADER_STOP_KIND] = contract.STOP_KINDS.index(kind)
        words[contract.HEADER_STOP_RANK] = rank
        first = contract.HEADER_STOP_REASON
        packed = memoryview(_packed(reason)).cast("q")
        words[first : first + len(packed)] = packed
        words[contract.HEADER_STOP_STEP] = check  # it makes the others count
        words[contract.HEADER_FREEZE] = 1
        self._tell()

    def copy(self) -> bytes:
        """Return the whole page as it is now."""
        self._hear()
        return bytes(self._map)

    def mark_dead(self, slot: int) -> None:
        """Tell the other ranks that this one has ended."""
        self._set(slot, contract.SLOT_DEAD, 1)
        self._tell()

    def close(self) -> None:
        """Give the page up; ranks that still map it keep their mapping."""
        if self.carrier:
            self.carrier.close()
        self._words.release()
        self._map.close()
        os.close(self.kept_fd)

    def _hear(self) -> None:
        """Have the slots up to date: to be called before they are read."""
        if self.carrier:
            self.carrier.pull(self._words)

    def _tell(self) -> None:
        """Have the ranks see the agent's words: to be called after they were stored."""
        if self.carrier:
            self.carrier.push(self._words)

    def _set(self, slot: int, word: int, value: int) -> None:
        self._words[contract.slot_offset(slot) + word] = value

    def _column(self, word: int) -> list[int]:
        self._hear()
        first = contract.slot_offset(0) + word
        return self._words[first :: contract.SLOT_WORDS].tolist()


def _packed(reason: str) -> bytes:
    """Return a text as the page has it: whole characters, padded with zeros."""
    whole = reason.encode(errors="replace")[:_REASON_BYTES].decode(errors="ignore")
    return whole.encode().ljust(_REASON_BYTES, b"\0")
