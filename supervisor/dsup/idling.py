"""Ranks that tell nothing of themselves: whether they still do anything.

Only an attempt in which no rank sends heartbeats is looked at so: where ranks tell
their steps, steps say more, and the census would cost more than the rest of the watch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dsup.core import stillness

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from dsup.core.watch import Suspicion
    from dsup.edges.census import Census


class Idling:
    """Watches over the ranks of one attempt.

    Args:
        pids: pid of each rank.

    Attributes:
        due_s: when the next look is due, agent clock, seconds.
    """

    def __init__(self, pids: Mapping[int, int]) -> None:
        self.due_s = 0.0
        self._pids = pids
        self._census: Census | None = None
        self._stillness = stillness.Stillness()
        self._close = False

    def look(
        self, now_s: float, alive: Collection[int], strain: float
    ) -> dict[int, Suspicion]:
        """Take a census; return who is suspected to do nothing any more.

        Args:
            now_s: agent clock, seconds.
            alive: ranks that have not ended.
            strain: by what the node's overload stretches everything.
        """
        if self._census is None:
            from dsup.edges.census import Census

            self._census = Census(self._pids)
        works = self._census.take(alive, close=self._close)
        self._stillness = stillness.counted(self._stillness, works, now_s)
        self._close = stillness.wants_close(self._stillness, now_s)
        self.due_s = now_s + stillness.EVERY_S
        return stillness.suspects(self._stillness, now_s, strain)

    def forgive(self) -> None:
        """Count what ranks have written by now as nothing: they were asked to."""
        if self._census is not None:
            self._census.forgive()

    def rest(self, for_s: float) -> None:
        """Have that time not passed: nobody has looked."""
        self._stillness = stillness.rested(self._stillness, for_s)
