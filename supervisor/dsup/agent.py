"""The agent: one loop, one thread. Edges see, ``decide`` decides, edges do.

It turns what descriptors and clocks tell into events, asks the state machine, and has
its commands carried out. It never blocks: whatever may (file systems, the console) is
an aide's work, behind a descriptor and a deadline. After the first rank runs it opens
nothing outside /proc.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from functools import partial
from typing import TYPE_CHECKING, Final

from dsup import orders
from dsup.core import events as ev
from dsup.core import machine
from dsup.core.state import NEVER, Stage
from dsup.edges import group
from dsup.linux import signals, tree
from dsup.parts import Parts

if TYPE_CHECKING:
    from dsup.core.job import Job
    from dsup.linux.guardian import Guardian
    from dsup.takeover import LookBack

LOOK_S: Final = 1.0
"""The loop turns at least this often, so that a stall of its own is seen."""

STALL_S: Final = 1.0
LAST_VERDICT_S: Final = 2.0
"""What the judge still gets when the run is over."""

LAST_AIDES_S: Final = 1.0
"""What an aide still gets when the run is over, a file system that hangs or not."""

_KILL_ROUND_S: Final = 0.05


def run(job: Job, guardian: Guardian, look_back: LookBack | None = None) -> int:
    """Supervise a job to its end and return the exit code of the run.

    Args:
        job: what to do.
        guardian: the process that cleans up if this one is killed.
        look_back: finds the run before; None to look for none.

    Raises:
        SpecError: if the ranks need more descriptors than this process may open.
    """
    group.demand_descriptors(job.spec.world_size)
    with contextlib.suppress(PermissionError):  # it has one already
        # A session of its own: what is sent to the guard's process group, a SIGKILL
        # above all, must not end both of them.
        os.setsid()
    group.close_inherited(guardian.fds)
    return Agent(Parts(job, guardian, look_back), guardian.pidfd).run()


class Agent:
    """Carries a job out, turn by turn.

    Args:
        parts: its edges, and the state between them.
        guard: the pidfd of the guard.
    """

    def __init__(self, parts: Parts, guard: int) -> None:
        self._parts = parts
        self._signals = signals.descriptor()
        parts.loop.watch(self._signals, self._on_signals)
        parts.loop.watch(guard, partial(self._on_guard_gone, guard))

    def run(self) -> int:
        """Turn the loop until the run is over, then have everything written."""
        parts = self._parts
        parts.post(ev.Launched("launched", time.monotonic()))
        self._answer()
        while parts.exit_code is None:
            self._turn()
        self._await_verdict()
        self._await_aides()
        self._await_scribe()
        return parts.exit_code

    def _turn(self) -> None:
        """Wait for something to happen, have it answered, and look around."""
        parts = self._parts
        overdue_s = parts.loop.turn(self._deadline())
        now_s = time.monotonic()
        if overdue_s > STALL_S:
            parts.events.appendleft(ev.LoopStalled("loop_stalled", now_s, overdue_s))
            parts.hangs.rest(overdue_s)
        parts.aides.expire(now_s)
        parts.inquiry.on_tick()
        found = parts.stops.newly_self_stopping(parts.state)
        if found is not None:
            parts.events.appendleft(found)
        self._answer()
        self._look_at_ranks(now_s)
        while parts.leftovers.look(parts.state, parts):
            self._answer()
        if tree.has_dead_child():
            tree.reap_adopted(parts.owned)
        self._look_on(now_s)
        parts.provision.look(now_s)

    def _deadline(self) -> float:
        """Return until when nothing needs to be done, agent clock, seconds."""
        parts = self._parts
        killing = parts.state.stage is Stage.KILLING
        return min(
            machine.deadline(parts.state),
            parts.aides.deadline(),
            parts.recorder.deadline(),
            parts.inquiry.deadline(),
            parts.onlookers.due_s,
            parts.provision.due_s,
            parts.hangs.deadline(parts.state),
            time.monotonic() + (_KILL_ROUND_S if killing else LOOK_S),
        )

    def _look_at_ranks(self, now_s: float) -> None:
        """See what they show without having told, and whether a limit has passed."""
        parts = self._parts
        parts.stops.look(parts.state)
        if now_s >= machine.deadline(parts.state):
            parts.post(ev.Tick("tick", now_s))
        parts.hangs.look(parts.state, parts.attempt.page)
        parts.steps.look(parts.state, now_s)
        self._answer()

    def _look_on(self, now_s: float) -> None:
        """Keep what the ranks do for the inquiry, and say how it stands."""
        parts = self._parts
        parts.inquiry.look(now_s, parts.attempt.page)
        text = parts.recorder.show_status(parts.state, parts.attempt.step())
        parts.onlookers.look(now_s, text and text.removeprefix("dsup: "))
        parts.recorder.on_tick()

    def _answer(self) -> None:
        """Let the machine answer what has happened, until nothing is left to answer."""
        parts = self._parts
        while parts.events:
            event, before = parts.events.popleft(), parts.state
            parts.state, commands = machine.decide(before, event)
            for command in commands:
                orders.carry_out(parts, command)
            parts.recorder.record(event, commands)
            parts.recorder.narrate(before, event, *parts.situation())
            parts.onlookers.tell(before, event, commands)
        parts.recorder.flush()

    def _await_verdict(self) -> None:
        """Let the judge finish, for a moment."""
        inquiry, until_s = self._parts.inquiry, time.monotonic() + LAST_VERDICT_S
        while inquiry.busy and time.monotonic() < until_s:
            self._finish(min(inquiry.deadline(), until_s))
            inquiry.on_tick()
            self._parts.recorder.flush()
        inquiry.stop()

    def _await_aides(self) -> None:
        """Let aides finish, for a moment."""
        aides = self._parts.aides
        aides.hurry(time.monotonic() + LAST_AIDES_S)
        while aides.deadline() < NEVER:
            self._finish(aides.deadline())

    def _await_scribe(self) -> None:
        """Have everything written; an aide that is killed, and in state D, is left."""
        recorder, aides = self._parts.recorder, self._parts.aides
        recorder.end()
        until_s = time.monotonic() + LAST_AIDES_S
        while not recorder.ended or (aides.pids and time.monotonic() <= until_s):
            self._finish(until_s if recorder.ended else NEVER)

    def _finish(self, until_s: float) -> None:
        parts = self._parts
        parts.loop.turn(min(parts.recorder.deadline(), until_s))
        parts.recorder.on_tick()
        parts.aides.expire(time.monotonic())

    def _on_signals(self) -> None:
        parts = self._parts
        for signum, sender in signals.read(self._signals):
            if signum != signal.SIGCHLD:
                now_s = time.monotonic()
                parts.post(ev.Signalled("signalled", now_s, signum, sender))
            elif parts.attempt.store_ended():
                reason = "the store of the ranks ended (is torch installed?)"
                parts.cannot("store_lost", 1, reason)

    def _on_guard_gone(self, pidfd: int) -> None:
        self._parts.loop.unwatch(pidfd)
        self._parts.post(ev.GuardLost("guard_lost", time.monotonic()))
