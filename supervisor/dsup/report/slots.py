"""A heartbeat page, read slot by slot by somebody who trusts nothing in it. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from dsup_runtime import contract

_STEP_MAX: Final = 2**53
_NS: Final = 1e-9


class Slots:
    """A heartbeat page, read slot by slot; nothing in it is trusted.

    Args:
        page: a copy of it; empty for none.

    Attributes:
        ranks: all that it has room for.
    """

    def __init__(self, page: bytes) -> None:
        whole = len(page) // contract.WORD_BYTES * contract.WORD_BYTES
        self._words = memoryview(page[:whole]).cast("q").tolist()
        room = (len(self._words) - contract.HEADER_WORDS) // contract.SLOT_WORDS
        self.ranks = range(max(0, min(room, contract.SLOTS_MAX)))

    @property
    def kept_s(self) -> float | None:
        """When the scribe copied it, agent clock, seconds; None if somebody else."""
        at_ns = self._word(len(self.ranks), 0)
        return at_ns * _NS if at_ns > 0 else None

    def finished(self) -> tuple[int, float] | None:
        """Return the step that every reporting rank has finished, and when; 0: never.

        None where no rank reports.
        """
        told = [(step, r) for r in self.ranks if (step := self.step(r)) is not None]
        if not told:
            return None
        least = min(step for step, _ in told)
        made = [self.progress_s(rank) or 0.0 for step, rank in told if step == least]
        return least, max(made)

    def step(self, rank: int) -> int | None:
        """Return a rank's last step; None where it has told none."""
        step = self._word(rank, contract.SLOT_STEP, contract.NO_STEP)
        return step if 0 <= step < _STEP_MAX else None

    def phase(self, rank: int) -> str | None:
        """Return a rank's phase; None where it has never sent a heartbeat."""
        if not self._word(rank, contract.SLOT_HEARTBEAT_NS):
            return None
        number = self._word(rank, contract.SLOT_PHASE)
        known = 0 <= number < len(contract.PHASES)
        return contract.PHASES[number] if known else None

    def beat_s(self, rank: int) -> float | None:
        """Return when a rank's last heartbeat was, agent clock; None for never."""
        return self._time(rank, contract.SLOT_HEARTBEAT_NS)

    def progress_s(self, rank: int) -> float | None:
        """Return when a rank's last step ended, agent clock; None for never."""
        return self._time(rank, contract.SLOT_PROGRESS_NS)

    def saved(self, ranks: Iterable[int]) -> tuple[int, float] | None:
        """Return step and time of the newest checkpoint that ranks have told of.

        Args:
            ranks: whose slots are looked at.
        """
        told = (
            (at_s, step)
            for rank in ranks
            if (at_s := self._time(rank, contract.SLOT_SAVED_NS)) is not None
            and 0 <= (step := self._word(rank, contract.SLOT_SAVED_STEP)) < _STEP_MAX
        )
        newest = max(told, default=None)
        return newest and (newest[1], newest[0])

    def _time(self, rank: int, word: int) -> float | None:
        at_ns = self._word(rank, word)
        return at_ns * _NS if at_ns > 0 else None

    def _word(self, rank: int, word: int, default: int = 0) -> int:
        at = contract.slot_offset(rank) + word
        return self._words[at] if at < len(self._words) else default
