"""Hangs of the attempt at hand: who seems to hang, and where all ranks are then.

The vigil looks once a second, and only while ranks run. What it finds becomes events.
Stacks are taken by an aide when the state machine orders it, one at a time and at most
every ``EVERY_S``, but for those that are taken before an attempt is ended for a hang.
Once they have shown that a rank did not come, it is looked at again now and then, so
that nobody is blamed for what has passed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from dsup.captures import Captures, Desk
from dsup.core import events as ev
from dsup.core.state import NEVER, Stage

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dsup.attribution.timeline import Hang
    from dsup.core.job import Job
    from dsup.core.state import State
    from dsup.core.watch import Finding, Watch
    from dsup.edges.group import Rank
    from dsup.edges.heartbeats import Page
    from dsup.edges.vigil import Vigil
    from dsup.facts.captured import Found
    from dsup.idling import Idling
    from dsup.straggling import Clues, Straggling
    from dsup.working import Working

EVERY_S: Final = 30.0
CAPTURE_S: Final = 5.0
SELDOM_TIMES: Final = 10.0
"""So much rarer where nothing is ever done on what is suspected."""

FINAL_S: Final = 9.0
"""Within the ten seconds after which the machine goes on without."""

_LOOKED_AT: Final = (Stage.RUNNING, Stage.CAPTURING)
_HURRY_S: Final = 0.5
"""So much before its deadline an aide is to have written what it has."""


class Helpers(Protocol):
    """What this needs of the aides."""

    def start(
        self,
        work: Callable[[], bytes],
        deadline_s: float,
        done: Callable[[bytes], None],
        *,
        kept: Collection[int] = (),
    ) -> None:
        """Have work done by a child; ``done`` gets its answer, empty for none."""


class File(Protocol):
    """What this needs of the file of an attempt."""

    attempt: int
    hang: Hang | None
    stacks: bytes
    traces: bytes


class Hangs:
    """Sees hangs, takes stacks; one object for all attempts.

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
        self._job = job
        self._aides = aides
        self._desk = desk
        self._post = post
        self._spy = ""
        self._vigil: Vigil | None = None
        self._idling: Idling | None = None
        self._at_work: Working | None = None
        self._page: Page | None = None
        self._straggling: Straggling | None = None
        self._attempt = -1
        self._captures = Captures(-1)
        self._reset()

    def _reset(self) -> None:
        self._environments: dict[int, Mapping[str, str]] = {}
        self._ranks: dict[int, Rank] = {}
        self._exited: set[int] = set()
        self._proven: Hang | None = None
        self._working = False
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
        self._attempt, self._ranks = attempt, dict(ranks)
        self._environments = dict(enumerate(environments))
        self._captures = Captures(attempt)
        if self._job.hang_limits is None or not ranks:
            return
        from dsup.edges.vigil import Vigil
        from dsup.idling import Idling
        from dsup.straggling import Straggling
        from dsup.working import Working

        pids = {number: rank.pid for number, rank in ranks.items()}
        self._vigil = Vigil(self._job.hang_limits, pids)
        self._idling = Idling(pids)
        self._at_work = Working(pids, self._job.hang_limits.unseen_s)
        self._straggling = Straggling(
            attempt, pids, self._aides, self.clues, self._post
        )

    def look(self, state: State, page: Page | None) -> None:
        """Look at the ranks, if it is time for it.

        While stacks are taken before an end it is only of interest whether they go on.
        """
        now_s, vigil, self._page = time.monotonic(), self._vigil, page
        if vigil is None or state.stage not in _LOOKED_AT or now_s < vigil.due_s:
            return
        self._exited = {end.rank for end in state.ended if end.status == 0}
        for found in vigil.look(now_s, state.alive, page.copy() if page else b""):
            if state.stage is Stage.RUNNING or found.kind == "cleared":
                self._tell(found, vigil.watch, now_s)
        if state.stage is not Stage.RUNNING:
            return
        self._look_seldom(vigil, now_s, state.alive)
        if not vigil.watch.suspected:
            self._due_s, self._told = NEVER, None
        elif now_s >= self._due_s:
            self.capture(state.alive, final=False)

    def limits_s(self) -> Mapping[int, float]:
        """Return how long each rank that has a limit may make no progress, seconds."""
        return self._vigil.limits_s() if self._vigil else {}

    def steps_s(self) -> dict[int, float]:
        """Return the usual step time of each rank that has one, seconds."""
        pulses = self._vigil.watch.pulses.items() if self._vigil else ()
        return {rank: pulse.usual_s for rank, pulse in pulses if pulse.usual_s}

    def _look_seldom(self, vigil: Vigil, now_s: float, alive: Collection[int]) -> None:
        """See who is slow, idle or at work, when it is time for it."""
        if self._straggling and now_s >= self._straggling.due_s:
            self._straggling.look(self.steps_s(), now_s)
        if self._idling and now_s >= self._idling.due_s and vigil.blind:
            vigil.doubt(self._idling.look(now_s, alive, vigil.strain))
        if self._at_work and now_s >= self._at_work.due_s and not self._working:
            watch, blind = vigil.watch, vigil.blind
            vigil.heed(self._at_work.look(now_s, alive, watch, blind=blind))

    def deadline(self, state: State) -> float:
        """Return when ``look`` must be called at the latest, agent clock, seconds."""
        looks = self._vigil is not None and state.stage in _LOOKED_AT
        return self._vigil.wake_s if self._vigil and looks else NEVER

    def rest(self, for_s: float) -> None:
        """Have that time, seconds, not passed for anybody: nobody has looked.

        What was confirmed by then stays so: only steps call the end of an attempt off.
        """
        if self._vigil and self._idling and self._at_work and not self._final:
            self._vigil.rest(for_s)
            self._idling.rest(for_s)
            self._at_work.rest(for_s)

    def testify(self, file: File, state: State) -> None:
        """Put into an attempt's file what is known of it here.

        Args:
            file: what is gathered about the attempt.
            state: says whether the attempt was ended for a hang.
        """
        if file.attempt == self._attempt:
            file.stacks, file.traces = self._captures.stacks, self._captures.traces
            file.hang = self._proven if state.hang else None

    def capture(self, alive: Collection[int], *, final: bool) -> None:
        """Take the stacks of ranks; ``Captured`` follows, at the latest in 10 s.

        Args:
            alive: ranks that have not ended.
            final: the attempt is about to be ended; else it may be put off.
        """
        now_s = time.monotonic()
        self._final = self._final or final
        if self._working:
            return  # what comes is of this moment, too
        if not self._final and now_s < self._taken_s + self._every_s:
            self._due_s = min(self._due_s, self._taken_s + self._every_s)
            return
        self._working, self._taken_s = True, now_s
        if self.clues:
            self.clues.glance()
        self._due_s = now_s + self._every_s
        if self._vigil:
            seldom = SELDOM_TIMES if self._vigil.watch.for_people else 1.0
            self._due_s = now_s + seldom * self._every_s
            self._vigil.deafen(deaf=True)
        self._start(alive, now_s + (FINAL_S if final else CAPTURE_S))

    def close(self) -> None:
        """Let everything go that belongs to an attempt, but for what it has shown."""
        if self._vigil:
            self._vigil.close()
            self._vigil = None
        if self._straggling:
            self._straggling.close()
        self._page = None
        self._captures.close()
        self._working = False

    def _tell(self, found: Finding, watch: Watch, now_s: float) -> None:
        from dsup import hang_news

        if found.kind == "confirmed":
            self._proven = hang_news.hang_of(found, watch, now_s)
        self._post(hang_news.event_of(found, watch, self._attempt, now_s))

    def _start(self, alive: Collection[int], deadline_s: float) -> None:
        from dsup.edges import capture
        from dsup.edges.group import STACKS_FD
        from dsup.linux import recorder_pipe, spy

        self._spy = self._spy or spy.find(self._job.environment.get("PATH", ""))
        try:
            self._captures.open()
        except OSError:
            self._on_captured(self._attempt, b"")
            return
        targets = tuple(
            capture.Target(rank, self._ranks[rank].pid, self._ranks[rank].stacks)
            for rank in sorted(alive)
            if rank in self._ranks
        )
        order = capture.Order(
            targets,
            tuple(sorted(self._exited)),
            STACKS_FD,
            self._captures.fd,
            self._captures.end,
            deadline_s - _HURRY_S,
            self._final,
            self._spy,
            tuple(recorder_pipe.recorders(self._environments, alive)),
        )
        files = [one.stacks for one in targets if one.stacks >= 0]
        done = partial(self._on_captured, self._attempt)
        work = partial(capture.work, order)
        self._aides.start(work, deadline_s, done, kept=(self._captures.fd, *files))

    def _on_captured(self, attempt: int, answer: bytes) -> None:
        if attempt != self._attempt or not self._working:
            return
        from dsup.facts.captured import decode

        now_s, found = time.monotonic(), decode(answer)
        self._working = False
        self._captures.keep(found, self._desk)
        self._forgive(now_s)
        if self._vigil and found.ranks:
            found = self._doubted(found)
        self._remember(found, now_s)
        told = found.ranks, found.op, found.place
        if self._final or told != self._told:
            final, self._final = self._final, False
            taken = bool(found.facts[1])
            self._post(ev.Captured("captured", now_s, attempt, final, *told, taken))
        self._told = told

    def _forgive(self, now_s: float) -> None:
        """Count for nothing what ranks have written of where they are."""
        if self._vigil and self._idling and self._at_work:
            self._vigil.deafen(deaf=False)
            self._idling.forgive()
            self._at_work.forgive(now_s, self._ranks)

    def _doubted(self, found: Found) -> Found:
        """Return what stacks have shown, without ranks that nobody waits for.

        Whoever made a step since the stacks were ordered does not wait.
        """
        from dsup import hang_news

        made = self._page.made_s().items() if self._page else ()
        if hang_news.at_work_still(found, made, self._taken_s):
            return found._replace(ranks=(), op="", place="")
        return found

    def _remember(self, found: Found, now_s: float) -> None:
        """Have the vigil know who did not come, and since when that is so."""
        vigil = self._vigil
        if vigil is None or not vigil.watch.suspected:
            return
        from dsup import hang_news

        vigil.missed(hang_news.absence(found, vigil.watch.absent, now_s))
