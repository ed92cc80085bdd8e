"""Hangs of the attempt at hand: who seems to hang, and where all ranks are then.

The vigil looks once a second, and only while ranks run. What it finds becomes events.
Stacks are taken by an aide when the state machine orders it, one at a time and at most
every ``EVERY_S``, but for those that are taken before an attempt is ended for a hang.
Once they have shown that a rank did not come, it is looked at again now and then, so
that nobody is blamed for what has passed.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, Protocol

from dsup.core import events as ev
from dsup.core.state import NEVER, Stage
from dsup.taking import Taking

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from dsup.attribution.timeline import Hang
    from dsup.captures import Desk
    from dsup.core.job import Job
    from dsup.core.state import State
    from dsup.core.watch import Finding, Watch
    from dsup.edges.group import Rank
    from dsup.edges.heartbeats import Page
    from dsup.facts.captured import Found
    from dsup.lookout import Lookout
    from dsup.straggling import Clues
    from dsup.taking import Helpers

EVERY_S: Final = 30.0
CAPTURE_S: Final = 5.0
SELDOM_TIMES: Final = 10.0
"""So much rarer where nothing is ever done on what is suspected."""

FINAL_S: Final = 9.0
"""Within the ten seconds after which the machine goes on without."""

_LOOKED_AT: Final = (Stage.RUNNING, Stage.CAPTURING)


class File(Protocol):
    """What this needs of the file of an attempt."""

    attempt: int
    hang: Hang | None
    stacks: bytes
    traces: bytes


class Hangs:
    """Sees hangs, has stacks taken; one object for all attempts.

    Args:
        job: what to do.
        aides: take the stacks.
        desk: keeps them.
        post: takes the events that come of it.
        every_s: how long it takes from one capture to the next, seconds.

    Attributes:
        clues: has the GPUs asked what they do, at each capture; None for no such thing.
    """

    def __init__(
        self,
        job: Job,
        aides: Helpers,
        desk: Desk,
        post: Callable[[ev.Event], None],
        every_s: float = EVERY_S,
    ) -> None:
        self._every_s = every_s
        self.clues: Clues | None = None
        self._limits = job.hang_limits
        self._aides = aides
        self._post = post
        self._taking = Taking(job.environment.get("PATH", ""), aides, desk)
        self._lookout: Lookout | None = None
        self._page: Page | None = None
        self._attempt = -1
        self._reset()

    def _reset(self) -> None:
        self._exited: set[int] = set()
        self._proven: Hang | None = None
        self._final = False
        self._taken_s = -NEVER
        self._due_s = NEVER
        self._told: tuple[tuple[int, ...], str, str] | None = None

    def started(
        self,
        attempt: int,
        ranks: Mapping[int, Rank],
        environments: Sequence[Mapping[str, str]] = (),
    ) -> None:
        """Begin: every rank of an attempt runs now.

        Args:
            attempt: its number.
            ranks: all of them; their memory files stay open until ``close``.
            environments: of each rank, in their order.
        """
        self.close()
        self._reset()
        self._attempt = attempt
        self._taking.begin(attempt, ranks, environments)
        if self._limits is None or not ranks:
            return
        from dsup.lookout import Lookout
        from dsup.straggling import Straggling

        pids = {number: rank.pid for number, rank in ranks.items()}
        slow = Straggling(attempt, pids, self._aides, self.clues, self._post)
        self._lookout = Lookout(pids, self._limits, slow)

    def look(self, state: State, page: Page | None) -> None:
        """Look at the ranks, if it is time for it.

        While stacks are taken before an end it is only of interest whether they go on.
        """
        now_s, lookout, self._page = time.monotonic(), self._lookout, page
        if lookout is None or state.stage not in _LOOKED_AT or now_s < lookout.due_s:
            return
        running = state.stage is Stage.RUNNING
        self._exited = {end.rank for end in state.ended if end.status == 0}
        for found in lookout.look(now_s, state.alive, page.copy() if page else b""):
            if running or found.kind == "cleared":
                self._tell(found, lookout.watch, now_s)
        if not running:
            return
        lookout.look_seldom(now_s, state.alive, disturbed=self._taking.busy)
        if not lookout.watch.suspected:
            self._due_s, self._told = NEVER, None
        elif now_s >= self._due_s:
            self.capture(state.alive, final=False)

    def limits_s(self) -> Mapping[int, float]:
        """Return how long each rank that has a limit may make no progress, seconds."""
        return self._lookout.limits_s() if self._lookout else {}

    def steps_s(self) -> Mapping[int, float]:
        """Return the usual step time of each rank that has one, seconds."""
        return self._lookout.steps_s() if self._lookout else {}

    def deadline(self, state: State) -> float:
        """Return when ``look`` must be called at the latest, agent clock, seconds."""
        looks = self._lookout is not None and state.stage in _LOOKED_AT
        return self._lookout.wake_s if self._lookout and looks else NEVER

    def rest(self, for_s: float) -> None:
        """Have that time, seconds, not passed for anybody: nobody has looked.

        What was confirmed by then stays so: only steps call the end of an attempt off.
        """
        if self._lookout and not self._final:
            self._lookout.rest(for_s)

    def testify(self, file: File, state: State) -> None:
        """Put into an attempt's file what is known of it here.

        Args:
            file: what is gathered about the attempt.
            state: says whether the attempt was ended for a hang.
        """
        if file.attempt == self._attempt:
            shown = self._taking.captures
            file.stacks, file.traces = shown.stacks, shown.traces
            file.hang = self._proven if state.hang else None

    def capture(self, alive: Collection[int], *, final: bool) -> None:
        """Take the stacks of ranks; ``Captured`` follows, at the latest in 10 s.

        Args:
            alive: ranks that have not ended.
            final: the attempt is about to be ended; else it may be put off.
        """
        now_s = time.monotonic()
        self._final = self._final or final
        if self._taking.busy:
            return  # what comes is of this moment, too
        if not self._final and now_s < self._taken_s + self._every_s:
            self._due_s = min(self._due_s, self._taken_s + self._every_s)
            return
        self._taken_s, self._due_s = now_s, now_s + self._every_s
        if self.clues:
            self.clues.glance()
        if self._lookout:
            seldom = SELDOM_TIMES if self._lookout.watch.for_people else 1.0
            self._due_s = now_s + seldom * self._every_s
            self._lookout.deafen()
        until_s = now_s + (FINAL_S if self._final else CAPTURE_S)
        done, final = self._on_captured, self._final
        self._taking.start(alive, self._exited, until_s, done, final=final)

    def close(self) -> None:
        """Let everything go that belongs to an attempt, but for what it has shown."""
        if self._lookout:
            self._lookout.close()
            self._lookout = None
        self._page = None
        self._taking.close()

    def _tell(self, found: Finding, watch: Watch, now_s: float) -> None:
        from dsup import hang_news

        if found.kind == "confirmed":
            self._proven = hang_news.hang_of(found, watch, now_s)
        self._post(hang_news.event_of(found, watch, self._attempt, now_s))

    def _on_captured(self, found: Found) -> None:
        now_s = time.monotonic()
        if self._lookout:
            self._lookout.forgive(now_s, self._taking.ranks)
            found = self._doubted(found)
            self._remember(found, now_s)
        told = found.ranks, found.op, found.place
        if self._final or told != self._told:
            final, self._final = self._final, False
            known = self._attempt, final, *told, bool(found.facts[1])
            self._post(ev.Captured("captured", now_s, *known))
        self._told = told

    def _doubted(self, found: Found) -> Found:
        """Return what stacks have shown, without ranks that nobody waits for.

        Whoever made a step since the stacks were ordered does not wait.
        """
        from dsup import hang_news

        made = self._page.made_s().items() if self._page else ()
        if found.ranks and hang_news.at_work_still(found, made, self._taken_s):
            return found._replace(ranks=(), op="", place="")
        return found

    def _remember(self, found: Found, now_s: float) -> None:
        """Have those who watch know who did not come, and since when that is so."""
        if self._lookout and self._lookout.watch.suspected:
            from dsup import hang_news

            before = self._lookout.watch.absent
            self._lookout.missed(hang_news.absence(found, before, now_s))
