"""What is gathered about one attempt while it runs: raw, and never interpreted here.

Nothing in it blocks: descriptors that have something are read, counters compared,
/proc looked at. What it all means is the judge's business.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

from dsup.core import commands as cmd
from dsup.core import events as ev
from dsup.core.exits import heeds_stop
from dsup.core.stopping import stops_run
from dsup.edges import notes
from dsup.edges.group import Rank
from dsup.edges.kernel_log import KernelLog
from dsup.linux import proc
from dsup_runtime import contract

if TYPE_CHECKING:
    from dsup.attribution.timeline import End, Hang, Timeline
    from dsup.edges.counters import Counters
    from dsup.edges.heartbeats import Page
    from dsup.edges.kin import Kin
    from dsup.edges.loop import Loop
    from dsup.edges.sampler import Sampler
    from dsup.edges.scene import Scene
    from dsup.facts.told import Outcome
    from dsup.judging import Case

NOTES_MAX: Final = 16
"""So many notes of a rank are kept: its first ones, for they come nearest the cause."""

_ASLEEP: Final = "D"


class CaseFile:
    """One attempt's file.

    Args:
        attempt: its number.
        world_size: ranks of the run.
        loop: watches the notes.
        post: takes the events that come of them.

    Attributes:
        obstacle: ``(cause, reason)`` of what was in the way where no rank failed.
        pids: pid of each rank that was started.
        tails: the ranks' last words, as the scribe handed them over.
        scene: what was found on the file systems; None while nobody has answered.
        page: the heartbeat page as it was when last looked at.
        outcomes: how ranks said that they end.
        ranks: every rank that was started.
        hang: why the attempt was ended while no rank had failed; None if it was not.
        stacks: records of the last captures.
        traces: of flight recorders, of the same.
    """

    def __init__(
        self,
        attempt: int,
        world_size: int,
        loop: Loop,
        post: Callable[[ev.Event], None],
    ) -> None:
        self.attempt = attempt
        self.obstacle: tuple[str, str] | None = None
        self.tails = b""
        self.scene: Scene | None = None
        self.page = b""
        self._world_size = world_size
        self._loop = loop
        self._post = post
        self._started_s = time.monotonic()
        self.ranks: dict[int, Rank] = {}
        self.hang: Hang | None = None
        self.stacks = self.traces = b""
        self.pids: dict[int, int] = {}
        self._notes: list[tuple[int, bytes]] = []
        self._told: Counter[int] = Counter()
        self.outcomes: dict[int, Outcome] = {}
        self._stopped_s: float | None = None
        self._heeded: set[int] = set()
        self._ends: list[ev.RankExited] = []
        self._standing: list[tuple[int, int, str, str]] = []
        self._signalled: dict[int, float] = {}
        self._kernel = KernelLog()
        self._counters: Counters | None = None
        self._kin: Kin | None = None
        self._sampler: Sampler | None = None

    @property
    def samples(self) -> list[bytes]:
        """Return the samples that were taken, one line each."""
        return self._sampler.lines if self._sampler else []

    @property
    def by_signal(self) -> bool:
        """Whether a rank died of a signal before dsup sent one."""
        return any(
            event.status < 0 and event.rank not in self._signalled
            for event in self._ends
        )

    @property
    def asked(self) -> Collection[int]:
        """Ranks that dsup has told to end."""
        return self._signalled.keys()

    @property
    def signalled(self) -> bool:
        """Whether dsup has signalled a rank."""
        return bool(self._signalled)

    def living(self) -> dict[int, int]:
        """Return the pid of each rank that has not ended."""
        over = {event.rank for event in self._ends}
        return {rank: pid for rank, pid in self.pids.items() if rank not in over}

    def statuses(self) -> dict[int, int]:
        """Return how each rank that has ended did: exit code, or minus its signal."""
        return {event.rank: event.status for event in self._ends}

    def add(self, rank: Rank) -> None:
        """Take in a rank that was just started."""
        self.ranks[rank.rank] = rank
        self.pids[rank.rank] = rank.pid
        self._loop.watch(rank.notes, partial(self._read_notes, rank))

    def started(self) -> None:
        """Note how counters stand and who descends from whom: every rank runs now."""
        from dsup.edges.counters import Counters
        from dsup.edges.kin import Kin
        from dsup.edges.sampler import Sampler

        self._counters, self._kin = Counters(), Kin()
        self._counters.snapshot(self.pids)
        self._sampler = Sampler(self._counters.memory)
        self._sampler.begin(time.monotonic())
        for rank, pid in self.pids.items():
            self._kin.add(rank, pid)

    def look(self, now_s: float, page: Page | None) -> None:
        """Note who descends from whom, lives where, and has how much, now and then."""
        if self._kin and self._counters and now_s >= self._kin.due_s:
            self._kin.look(now_s)
            self._counters.look()
            # Whom a look has just met is that rank's, whoever had the number before.
            if self._sampler and now_s >= self._sampler.due_s:
                self._sampler.look(now_s, self._kin.present, page)

    def before_reap(self, rank: Rank) -> None:
        """Look at a rank that has ended, before it is gone for good."""
        self._read_notes(rank)
        if self._counters:
            self._counters.note_death(rank.rank, rank.pid)

    def ended(self, event: ev.RankExited) -> None:
        """Note a rank's end; the others wait for their signal meanwhile."""
        if self._stopped_s is not None and heeds_stop(event.status):
            self._signalled.setdefault(event.rank, self._stopped_s)
            self._heeded.add(event.rank)
        self._ends.append(event)

    def stopped(self, order: cmd.Command) -> None:
        """Note that the ranks were told to leave: who then does has not failed."""
        if isinstance(order, cmd.PublishStop) and stops_run(order.stop, order.rank):
            self._stopped_s = time.monotonic()

    def before_signal(self, ranks: Iterable[int]) -> None:
        """Look at ranks that dsup is about to signal for the first time."""
        for number in ranks:
            if number in self._signalled or number not in self.pids:
                continue
            pid = self.pids[number]
            found = proc.stat(pid)
            state = found.state if found else ""
            wchan = proc.wchan(pid) if state == _ASLEEP else ""
            self._standing.append((number, pid, state, wchan))
            self._signalled[number] = time.monotonic()

    def look_closely(self, page: Page | None) -> None:
        """Look at what will be gone soon: helpers, and the heartbeat page if there is.

        It takes some milliseconds, so the ranks have their signal already.
        """
        if self._kin and self._counters:
            self._kin.look_closely()
            self._counters.read()
        if page is not None:
            self.page = page.copy()

    def last_step(self, rank: int) -> int | None:
        """Return the last step that a rank told of, as of the last close look."""
        words = memoryview(self.page).cast("q")
        at = contract.slot_offset(rank) + contract.SLOT_STEP
        step = words[at] if at < len(words) else contract.NO_STEP
        return step if step >= 0 else None

    def case(self) -> Case:
        """Return everything that is known now."""
        from dsup.judging import Case

        self._kernel.drain()
        return Case(
            known=self._known(),
            notes=tuple(self._notes),
            error_files=self.scene.error_files if self.scene else {},
            kernel_records=self._kernel.records,
            kernel_error=self._kernel.error,
            kernel_lost=self._kernel.lost,
            samples=tuple(self.samples),
            tails=self.tails,
            page=self.page,
            stacks=self.stacks,
            traces=self.traces,
        )

    def _known(self) -> Timeline:
        from dsup.attribution.timeline import Standing, Timeline

        counters = self._counters
        return Timeline(
            attempt=self.attempt,
            world_size=self._world_size,
            node=os.uname().nodename,
            started_s=self._started_s,
            obstacle=self.obstacle,
            ends=tuple(self._own_ends()),
            standing=tuple(
                Standing(*found)
                for found in self._standing
                if found[0] not in self._heeded
            ),
            signalled=dict(self._signalled),
            kin=self._kin.pids() if self._kin else {},
            host_pids=proc.in_initial_namespace(),
            counters=tuple(counters.risen()) if counters else (),
            counters_read=counters.readable if counters else False,
            pressure=counters.pressure() if counters else None,
            cgroups=counters.cgroups if counters else {},
            spaces=self.scene.spaces if self.scene else (),
            hang=self.hang,
            deafened=tuple(r for r, n in self._told.items() if n == NOTES_MAX),
        )

    def close(self) -> None:
        """Let every descriptor go."""
        for rank in self.ranks.values():
            self._loop.unwatch(rank.notes)
            os.close(rank.notes)
            if rank.stacks >= 0:
                os.close(rank.stacks)
        self.ranks = {}
        self._kernel.close()

    def _own_ends(self) -> Iterator[End]:
        from dsup.attribution.timeline import End

        # One that was told to leave was on its way out for no fault of its own.
        dying = {rank for event in self._ends for rank in event.dying} - self._heeded
        for event in self._ends:
            pid, late = self.pids[event.rank], event.rank in dying
            yield End(event.rank, pid, event.status, event.at_s, event.late_s, late)

    def _read_notes(self, rank: Rank) -> None:
        for raw in notes.read(rank.notes):
            if self._told[rank.rank] < NOTES_MAX:
                self._told[rank.rank] += 1
                self._notes.append((rank.rank, raw))
                self._tell(rank, raw)
        if self._told[rank.rank] == NOTES_MAX:
            self._loop.unwatch(rank.notes)
            notes.deafen(rank.notes)

    def _tell(self, rank: Rank, raw: bytes) -> None:
        from dsup.facts.errors import is_communication
        from dsup.facts.note import decode_note

        raised = decode_note(rank.rank, raw)
        if raised is None:
            self._tell_wish(rank.rank, raw)
            return
        # A thread's exception, a helper's, or one handed over, does not end the rank.
        own = raised.pid == rank.pid and not raised.thread and not raised.handed
        decisive = own and not is_communication(raised.type, raised.text)
        now_s = time.monotonic()
        self._post(ev.Noted("noted", now_s, self.attempt, rank.rank, decisive))

    def _tell_wish(self, rank: int, raw: bytes) -> None:
        from dsup.facts.told import decode_outcome, decode_wanted

        wanted, ends = decode_wanted(raw), decode_outcome(raw)
        if ends is not None:
            self.outcomes[rank] = ends
        if wanted is not None:
            now_s = time.monotonic()
            self._post(ev.StopWanted("stop_wanted", now_s, self.attempt, rank, *wanted))
