"""Whether ranks without a step are at work all the same.

Nobody asks while all make steps. Once a rank is suspected, and of ranks that tell
nothing where their output has a limit, a census is taken now and then.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from dsup.core import activity

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from dsup.core.activity import Active
    from dsup.core.watch import Watch
    from dsup.edges.census import Census

EVERY_S: Final = 5.0
OFTEN_S: Final = 1.0
SELDOM_S: Final = 30.0
_SHARE: Final = 8.0
"""So many censuses in the time that ranks may print nothing."""


class Working:
    """Looks at the ranks of one attempt.

    Args:
        pids: pid of each rank.
        unseen_s: how long ranks that tell nothing may print nothing; None for no limit.

    Attributes:
        due_s: when the next look is due, agent clock, seconds.
    """

    def __init__(self, pids: Mapping[int, int], unseen_s: float | None) -> None:
        self.due_s = 0.0
        self._pids = pids
        self._unseen_s = math.inf if unseen_s is None else unseen_s
        self._census: Census | None = None
        self._at_s: float | None = None

    def look(
        self, now_s: float, alive: Collection[int], watch: Watch, *, blind: bool
    ) -> Mapping[int, Active]:
        """Return when ranks were last seen at work; nothing while nobody asks.

        Args:
            now_s: agent clock, seconds.
            alive: ranks that have not ended.
            watch: over them.
            blind: no rank tells anything of itself.
        """
        limited = blind and math.isfinite(self._unseen_s)
        if not limited and not watch.suspected:
            self._census, self._at_s = None, None
            return {}
        if self._census is None:
            from dsup.edges.census import Census

            self._census = Census(self._pids)
        works = self._census.take(alive, close=True)
        passed_s = None if self._at_s is None else now_s - self._at_s
        every_s = min(max(self._unseen_s / _SHARE, OFTEN_S), SELDOM_S)
        self._at_s = now_s
        self.due_s = now_s + (every_s if limited else EVERY_S)
        return activity.seen(watch.active, works, passed_s, now_s)

    def forgive(self, now_s: float, alive: Collection[int]) -> None:
        """Count what ranks have done by now for nothing: they were asked to."""
        if self._census is not None:
            self._census.take(alive, close=True)
            self._at_s = now_s

    def rest(self, for_s: float) -> None:
        """Have that time not passed: nobody has looked."""
        if self._at_s is not None:
            self._at_s += for_s
