"""All who watch the ranks of one attempt, each in its own time.

The vigil looks at everybody once a second. Now and then somebody sees who is slow, who
does nothing although it tells nothing, and who is at work although it makes no step;
what they see, the vigil takes in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dsup.edges.vigil import Vigil
from dsup.idling import Idling
from dsup.working import Working

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from dsup.core.limits import Limits
    from dsup.core.watch import Absence, Finding, Watch
    from dsup.straggling import Straggling


class Lookout:
    """Those who watch.

    Args:
        pids: pid of each rank.
        limits: how long phases may last.
        straggling: sees who is slow.
    """

    def __init__(
        self, pids: Mapping[int, int], limits: Limits, straggling: Straggling
    ) -> None:
        self._vigil = Vigil(limits, pids)
        self._idling = Idling(pids)
        self._working = Working(pids, limits.unseen_s)
        self._straggling = straggling

    @property
    def watch(self) -> Watch:
        """What is remembered of the ranks."""
        return self._vigil.watch

    @property
    def due_s(self) -> float:
        """When the next look is due, agent clock, seconds."""
        return self._vigil.due_s

    @property
    def wake_s(self) -> float:
        """When somebody has to be woken for it; infinite where any turn will do."""
        return self._vigil.wake_s

    def limits_s(self) -> Mapping[int, float]:
        """Return how long each rank that has a limit may make no progress, seconds."""
        return self._vigil.limits_s()

    def steps_s(self) -> dict[int, float]:
        """Return the usual step time of each rank that has one, seconds."""
        pulses = self.watch.pulses.items()
        return {rank: pulse.usual_s for rank, pulse in pulses if pulse.usual_s}

    def look(
        self, now_s: float, alive: Collection[int], page: bytes
    ) -> tuple[Finding, ...]:
        """Look at the ranks that have not ended; return what is news."""
        return self._vigil.look(now_s, alive, page)

    def look_seldom(
        self, now_s: float, alive: Collection[int], *, disturbed: bool
    ) -> None:
        """See who is slow, idle or at work, when it is time for it.

        Args:
            now_s: agent clock, seconds.
            alive: ranks that have not ended.
            disturbed: their stacks are being taken, which is work, but not theirs.
        """
        vigil = self._vigil
        if now_s >= self._straggling.due_s:
            self._straggling.look(self.steps_s(), now_s)
        if now_s >= self._idling.due_s and vigil.blind:
            vigil.doubt(self._idling.look(now_s, alive, vigil.strain))
        if now_s >= self._working.due_s and not disturbed:
            blind = vigil.blind
            vigil.heed(self._working.look(now_s, alive, vigil.watch, blind=blind))

    def rest(self, for_s: float) -> None:
        """Have that time, seconds, not passed for anybody: nobody has looked."""
        self._vigil.rest(for_s)
        self._idling.rest(for_s)
        self._working.rest(for_s)

    def deafen(self) -> None:
        """Have what ranks write not count: they are asked to write where they are."""
        self._vigil.deafen(deaf=True)

    def forgive(self, now_s: float, ranks: Collection[int]) -> None:
        """Count for nothing what ranks have written and done since."""
        self._vigil.deafen(deaf=False)
        self._idling.forgive()
        self._working.forgive(now_s, ranks)

    def missed(self, absent: Absence | None) -> None:
        """Remember who did not come, by the last stacks; None for nobody."""
        self._vigil.missed(absent)

    def close(self) -> None:
        """Close every file."""
        self._vigil.close()
        self._straggling.close()
