"""The timekeeper: keeps the ledger of a run that goes on, from what the journal gets.

Nothing is counted before somebody asks, or a few hundred items wait: that is seldom,
and the agent has better things to do before its first rank runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from dsup.core.commands import Command
    from dsup.core.events import Event
    from dsup.core.ledger import Balance, Item, Ledger

WAITING_MAX: Final = 256


class Timekeeper:
    """Keeps the ledger."""

    def __init__(self) -> None:
        self._waiting: list[Item] = []
        self._ledger: Ledger | None = None

    def tell(self, event: Event, commands: Iterable[Command]) -> None:
        """Take in what happened, and what was ordered because of it."""
        self._waiting += (event, *commands)
        if len(self._waiting) > WAITING_MAX:
            self._count()

    def document(self, now_s: float) -> Mapping[str, Any] | None:
        """Return where the time went so far, as the status document has it.

        Args:
            now_s: the present, agent clock, seconds.
        """
        from dsup.report import ledger as told

        found = self._balance(now_s)
        return found and told.document(found)

    def line(self) -> str:
        """Return where the time of a run that is over went; empty for no line."""
        from dsup.report import ledger as told

        found = self._balance(None)
        return told.line(found) if found else ""

    def _balance(self, now_s: float | None) -> Balance | None:
        from dsup.core import ledger

        return ledger.balance(self._count(), now_s)

    def _count(self) -> Ledger:
        from dsup.core import ledger

        before = self._ledger or ledger.Ledger()
        self._ledger = ledger.entered(before, self._waiting)
        self._waiting = []
        return self._ledger
