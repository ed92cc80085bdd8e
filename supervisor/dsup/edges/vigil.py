"""The vigil: one cheap look a second at every rank that runs.

What is looked at are files of /proc that stay open (a file of a process that has gone
says so, whoever has its number by then), and the heartbeat page. Nothing in it is
trusted, nothing is waited for: a frozen process, or one that sleeps in the kernel,
answers through these files as any other does. What a look means, ``core.liveness``
says; how overload stretches limits, ``core.strain``.

It is the agent's dearest habit, so it does as little as it can: a rank that has sent a
heartbeat since the last look is not frozen, and need not be looked at in /proc; where
nothing has changed and no limit has come, nothing can have become news.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from dsup.core import liveness, strain
from dsup.core.activity import Active
from dsup.core.limits import Limits
from dsup.core.pulse import FLOOR_S, Look
from dsup.core.watch import Absence, Finding, Suspicion, Watch
from dsup.linux import proc
from dsup.linux.gauge import Gauge
from dsup.linux.written import Written
from dsup_runtime import contract

EVERY_S: Final = 1.0

EARLY_LOOKS: Final = 8
GAUGE_LOOKS: Final = 4
"""Pressure is read at every fourth look, and before anybody is suspected; at each of
the first ones, since what is usual has to be learned before a hang can be told."""

_AFTER_S: Final = 0.001
"""A limit has passed when it is over."""

_STAT_BYTES: Final = 1024
_GONE: Final = frozenset("ZX")
_STILL: Final = frozenset("TtD")
_FINE: Final = "S"
_ASLEEP: Final = "D"
_STEP_MAX: Final = 2**53
_NS: Final = 1e-9


class Vigil:
    """The vigil over the ranks of one attempt.

    Args:
        limits: how long phases may last.
        pids: pid of each rank.
        root: stands for ``/`` where pressure is read.

    Attributes:
        watch: what is remembered.
        due_s: when the next look is due, agent clock, seconds.
        wake_s: when somebody has to be woken for it; infinite where any turn of the
            agent's loop will do, which turns once a second anyway.
    """

    def __init__(self, limits: Limits, pids: Mapping[int, int], root: str = "") -> None:
        self.watch = Watch(limits)
        self.due_s = 0.0
        self.wake_s = math.inf
        self._strain = strain.Strain()
        self._stats = dict(_opened(pids))
        # Output is the only progress that a rank without the runtime shows.
        self._written = Written({} if limits.unseen_s is None else pids)
        self._gauge = Gauge(next(iter(pids.values()), 0), root)
        self._turn = 0
        self._looks: dict[int, Look] = {}
        self._calm_until_s: float | None = None

    def look(
        self, now_s: float, alive: Iterable[int], page: bytes
    ) -> tuple[Finding, ...]:
        """Look at ranks; return what is news.

        Args:
            now_s: agent clock, seconds.
            alive: ranks that have not ended.
            page: the heartbeat page; empty for none.
        """
        words = memoryview(page).cast("q").tolist()
        before, self._looks = (
            self._looks,
            {rank: look for rank in alive if (look := self._look(rank, words))},
        )
        calm = self._looks == before and now_s <= self._calm_until()
        found = () if calm else self._observe(now_s)
        self.wake_s = self._passes_s(now_s)
        self.due_s = min(now_s + EVERY_S, self.wake_s)
        self._turn += 1
        if self._turn <= EARLY_LOOKS or self._turn % GAUGE_LOOKS == 0:
            self._weigh(now_s)
        return found

    def limits_s(self) -> dict[int, float]:
        """Return how long each rank may go on without progress, seconds.

        It is what is in force now, with what overload adds; ranks without a limit are
        left out.
        """
        watch, factor = self.watch, self._strain.factor
        ends = {rank: watch.outlasts_s(rank, factor) for rank in watch.pulses}
        return {
            rank: at_s - watch.pulses[rank].since_s
            for rank, at_s in ends.items()
            if at_s is not None and math.isfinite(at_s)
        }

    def rest(self, for_s: float) -> None:
        """Have that time, seconds, not passed for anybody: nobody has looked."""
        self.watch = liveness.rested(self.watch, for_s)
        self._strain = self._strain._replace(last=None)
        self._calm_until_s = None

    @property
    def blind(self) -> bool:
        """Whether no rank tells anything of itself."""
        return all(look.heartbeat_s is None for look in self._looks.values())

    @property
    def strain(self) -> float:
        """By what the node's overload stretches everything."""
        return self._strain.factor

    def doubt(self, still: Mapping[int, Suspicion]) -> None:
        """Take in which ranks that tell nothing do nothing any more."""
        if still != self.watch.still:
            self.watch = self.watch._replace(still=still)
            self._calm_until_s = float("-inf")

    def heed(self, active: Mapping[int, Active]) -> None:
        """Take in when ranks were last seen at work."""
        if active != self.watch.active:
            self.watch = self.watch._replace(active=active)
            self._calm_until_s = float("-inf")

    def deafen(self, *, deaf: bool) -> None:
        """Have what ranks write not count while they are asked to."""
        if deaf:
            self._written.deaf = True
        else:
            self._written.listen()

    def missed(self, absent: Absence | None) -> None:
        """Remember who did not come, by the last stacks; None for nobody."""
        self.watch = self.watch._replace(absent=absent)

    def close(self) -> None:
        """Close every file."""
        for fd in self._stats.values():
            os.close(fd)
        self._stats = {}
        self._written.close()
        self._gauge.close()

    def _passes_s(self, now_s: float) -> float:
        """Return when the first limit passes, if that is within a second; else never.

        Where everybody has just made a step, none can.
        """
        next_s = now_s + EVERY_S
        pulses = self.watch.pulses.values()
        if all(next_s - pulse.since_s <= FLOOR_S for pulse in pulses):
            return math.inf
        until_s = self._calm_until()
        return until_s + _AFTER_S if now_s < until_s < next_s else math.inf

    def _calm_until(self) -> float:
        """Return until when looks that show nothing new can bring no news."""
        if self._calm_until_s is None:
            self._calm_until_s = liveness.calm_until_s(self.watch)
        return self._calm_until_s

    def _observe(self, now_s: float) -> tuple[Finding, ...]:
        """Fold the looks; before that is news, see whether overload explains it."""
        looks, before = self._looks.values(), self.watch
        factor = self._strain.factor
        after, found = liveness.observe(before, looks, now_s, factor)
        if after.suspected and not before.suspected:
            self._weigh(now_s)
            factor = self._strain.factor
            after, found = liveness.observe(before, looks, now_s, factor)
        self.watch, self._calm_until_s = after, None
        return found

    def _weigh(self, now_s: float) -> None:
        """See how much those have to wait that want to run."""
        last = self._strain.last
        since_s = last.at_s if last else now_s
        progressed = any(
            pulse.since_s > since_s for pulse in self.watch.pulses.values()
        )
        now = strain.Pressure(now_s, *self._gauge.read())
        self._strain = strain.looked_at(self._strain, now, progressed=progressed)

    def _look(self, rank: int, words: list[int]) -> Look | None:
        """Return how a rank is; the same object if nothing has changed."""
        first = contract.slot_offset(rank)
        slot = words[first : first + contract.SLOT_WORDS]
        before = self._looks.get(rank)
        seen = (
            _seen(rank, slot) if slot and slot[contract.SLOT_HEARTBEAT_NS] > 0 else None
        )
        if seen and before and seen.heartbeat_s != before.heartbeat_s:
            return seen  # it has run since the last look
        stat = _content(self._stats.get(rank, -1), _STAT_BYTES)
        state = stat[(at := stat.rfind(b")")) + 2 : at + 3].decode("ascii", "replace")
        if not state or state in _GONE:
            return None
        look = seen or Look(rank, _FINE, wrote=self._written.by(rank))
        if state not in _STILL:
            return look
        # Only of one that sleeps in the kernel it matters whether it runs now and then.
        cpu_s = proc.cpu_s(stat[at + 2 :].split()) if state == _ASLEEP else 0.0
        return look._replace(state=state, cpu_s=cpu_s)


def _opened(pids: Mapping[int, int]) -> Iterator[tuple[int, int]]:
    """Yield of each rank a file that tells of its main thread.

    Other threads may go on while that one sleeps in the kernel.
    """
    for rank, pid in pids.items():
        path = f"/proc/{pid}/task/{pid}/stat"
        with contextlib.suppress(OSError):
            yield rank, os.open(path, os.O_RDONLY | os.O_CLOEXEC)


def _content(fd: int, size: int) -> bytes:
    try:
        return os.pread(fd, size, 0)
    except OSError:  # it has gone, and been collected
        return b""


def _seen(rank: int, slot: list[int]) -> Look:
    """Return what a rank has told of itself."""
    step, phase = slot[contract.SLOT_STEP], slot[contract.SLOT_PHASE]
    progress_ns = slot[contract.SLOT_PROGRESS_NS]
    limit_ns = slot[contract.SLOT_PHASE_LIMIT_NS]
    known = 0 <= phase < len(contract.PHASES)
    return Look(
        rank,
        _FINE,
        0.0,
        step if 0 <= step < _STEP_MAX else None,
        slot[contract.SLOT_HEARTBEAT_NS] * _NS,
        progress_ns * _NS if progress_ns > 0 else None,
        contract.PHASES[phase] if known else "",
        limit_ns * _NS if limit_ns > 0 else None,
    )
