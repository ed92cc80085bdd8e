"""The agent: one loop, one thread. Edges see, ``decide`` decides, edges do.

It turns what descriptors and clocks tell into events, asks the state machine, and
carries its commands out. It never blocks: whatever may (file systems, the console) is
an aide's work, behind a descriptor and a deadline. After the first rank runs it opens
nothing outside /proc.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections import deque
from collections.abc import Iterator
from functools import partial
from typing import Final, assert_never

from dsup.attempt import OOM_SCORE, Attempt
from dsup.core import commands as cmd
from dsup.core import events as ev
from dsup.core import machine
from dsup.core.errors import DsupError, SpawnError
from dsup.core.job import Job
from dsup.core.job import command as command_line
from dsup.core.state import NEVER, Stage, State
from dsup.edges import group
from dsup.edges.aide import Aides
from dsup.edges.loop import Loop
from dsup.hangs import Hangs
from dsup.inquiry import Inquiry
from dsup.leftovers import Leftovers
from dsup.linux import priority, signals, tree
from dsup.linux.guardian import Guardian
from dsup.onlookers import Onlookers
from dsup.present import Sources
from dsup.publisher import Publisher
from dsup.recorder import Recorder
from dsup.report.console import View
from dsup.steps import Steps
from dsup.stops import Stops
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
    return Agent(job, guardian, look_back).run()


class Agent:
    """Carries a job out; owns every edge and the state between them."""

    def __init__(
        self, job: Job, guardian: Guardian, look_back: LookBack | None
    ) -> None:
        self._job = job
        self._state = machine.initial(job.spec)
        self._events: deque[ev.Event] = deque()
        self._loop = Loop()
        self._aides = Aides(self._loop)
        self._ranks = group.WorkerGroup(job.environment.get(OOM_SCORE, ""))
        self._recorder = Recorder(job, guardian.will, self._loop)
        self._attempt = Attempt(job, self._aides, self._recorder, self._post)
        self._publisher = Publisher(job, self._recorder, self._situation)
        self._inquiry = Inquiry(
            job, self._aides, self._publisher, self._loop, self._post
        )
        self._recorder.on_directories = self._attempt.on_directories
        self._recorder.on_tails = self._inquiry.on_tails
        self._hangs = Hangs(job, self._aides, self._publisher, self._post)
        self._hangs.clues = self._inquiry
        known = job, self._sources(), self._aides, self._post
        self._onlookers = Onlookers(*known, relay=guardian.relay, look_back=look_back)
        self._stops = Stops(self._attempt, self._post)
        self._steps = Steps(self._attempt, self._post)
        self._leftovers = Leftovers(self._post)
        self._exit_code: int | None = None
        self._nice = os.getpriority(os.PRIO_PROCESS, 0)
        self._signals = signals.descriptor()
        self._loop.watch(self._signals, self._on_signals)
        self._loop.watch(guardian.pidfd, partial(self._on_guard_gone, guardian.pidfd))

    def run(self) -> int:
        """Turn the loop until the run is over, then have everything written."""
        self._post(ev.Launched("launched", time.monotonic()))
        self._answer()
        while self._exit_code is None:
            self._turn()
        until_s = time.monotonic() + LAST_VERDICT_S
        while self._inquiry.busy and time.monotonic() < until_s:
            self._finish(min(self._inquiry.deadline(), until_s))
            self._inquiry.on_tick()
            self._recorder.flush()
        self._inquiry.stop()
        self._aides.hurry(time.monotonic() + LAST_AIDES_S)
        while self._aides.deadline() < NEVER:
            self._finish(self._aides.deadline())
        self._recorder.end()
        until_s = time.monotonic() + LAST_AIDES_S
        while not self._recorder.ended or self._aides.pids:
            if self._recorder.ended and time.monotonic() > until_s:
                break  # killed, and in state D
            self._finish(until_s if self._recorder.ended else NEVER)
        return self._exit_code

    def _finish(self, until_s: float) -> None:
        self._loop.turn(min(self._recorder.deadline(), until_s))
        self._recorder.on_tick()
        self._aides.expire(time.monotonic())

    def _turn(self) -> None:
        now_s = time.monotonic()
        looks = _KILL_ROUND_S if self._state.stage is Stage.KILLING else LOOK_S
        overdue_s = self._loop.turn(
            min(
                machine.deadline(self._state),
                self._aides.deadline(),
                self._recorder.deadline(),
                self._inquiry.deadline(),
                self._onlookers.due_s,
                self._hangs.deadline(self._state),
                now_s + looks,
            )
        )
        now_s = time.monotonic()
        if overdue_s > STALL_S:
            self._events.appendleft(ev.LoopStalled("loop_stalled", now_s, overdue_s))
            self._hangs.rest(overdue_s)
        self._aides.expire(now_s)
        self._inquiry.on_tick()
        found = self._stops.newly_self_stopping(self._state)
        if found is not None:
            self._events.appendleft(found)
        self._answer()
        self._stops.look(self._state)
        if now_s >= machine.deadline(self._state):
            self._post(ev.Tick("tick", now_s))
        self._hangs.look(self._state, self._attempt.page)
        self._steps.look(self._state, now_s)
        self._answer()
        while self._leftovers.look(self._state, self._spared, self._owned):
            self._answer()
        tree.reap_adopted(self._owned)
        self._look(now_s)
        self._recorder.on_tick()

    def _look(self, now_s: float) -> None:
        """Look at what the ranks do, and say how it stands."""
        self._inquiry.look(now_s, self._attempt.page)
        text = self._recorder.show_status(self._state, self._attempt.step())
        self._onlookers.look(now_s, text and text.removeprefix("dsup: "))

    @property
    def _owned(self) -> set[int]:
        """Children whose exit status somebody here waits for."""
        return {*self._ranks.pids, *self._aides.pids, *self._spared}

    @property
    def _spared(self) -> set[int]:
        """Children that are not the ranks' doing."""
        helpers = self._attempt.helpers | self._inquiry.helpers | self._onlookers.pids
        return {*self._aides.pids, *self._recorder.pids, *helpers}

    def _sources(self) -> Sources:
        """Return who knows how the run stands."""
        inquiry, publisher, hangs = self._inquiry, self._publisher, self._hangs
        looking = inquiry, publisher, self._recorder, hangs
        return Sources(self._situation, self._attempt, *looking)

    def _post(self, event: ev.Event) -> None:
        self._events.append(event)

    def _answer(self) -> None:
        """Let the machine answer what has happened, until nothing is left to answer."""
        while self._events:
            event = self._events.popleft()
            before = self._state
            self._state, commands = machine.decide(before, event)
            for command in commands:
                self._carry_out(command)
            self._recorder.record(event, commands)
            self._recorder.narrate(before, event, self._state, self._attempt.view())
            self._onlookers.tell(before, event, commands)
        self._recorder.flush()

    def _carry_out(self, command: cmd.Command) -> None:  # noqa: C901, PLR0912, PLR0915
        match command:
            case cmd.Prepare():
                self._attempt.prepare(command.attempt)
                self._inquiry.begin(command.attempt, self._attempt.tmp_dir)
            case cmd.Spawn():
                self._spawn()
            case cmd.SignalRanks():
                self._inquiry.file.before_signal(command.ranks)
                self._ranks.signal(command.ranks, command.signum)
            case cmd.FreezePage() | cmd.CountChecks() | cmd.PublishStop():
                self._stops.carry_out(command)
                self._inquiry.file.stopped(command)
            case cmd.PassOn():
                deaf = self._ranks.pass_on(command.ranks, command.signum)
                self._recorder.say_deaf(deaf, command.signum)
            case cmd.Capture():
                self._hangs.capture(self._state.alive, final=command.final)
            case cmd.TerminateHelpers():
                group.terminate_helpers(self._spared)
            case cmd.KillAll():
                self._inquiry.file.before_signal(self._state.alive)
                self._attempt.cgroups.kill()
                tree.kill(self._spared, owned=self._owned)
            case cmd.CloseAttempt():
                self._inquiry.close(self._state, self._attempt.page)
                kept = self._state.succeeded and self._job.spec.keep_helpers
                self._attempt.close(keep_tmp=kept)
                self._hangs.close()
            case cmd.Scan():
                self._scan()
            case cmd.Judge():
                self._judge(final=command.final)
            case cmd.Propose():
                self._agree(command)
            case cmd.Exit():
                self._exit_code = command.code
                self._onlookers.ending()
                self._inquiry.end(command.code, command.origin)
            case _:
                assert_never(command)

    def _spawn(self) -> None:
        """Start the ranks, and only then what reads their output."""
        number, started = self._state.attempt, list[group.Rank]()
        os.setpriority(os.PRIO_PROCESS, 0, self._nice)
        try:
            for rank in self._start_ranks():
                started.append(rank)
                self._attempt.add(rank)
                self._inquiry.file.add(rank)
                self._loop.watch(rank.pidfd, partial(self._on_rank, rank))
                now_s = time.monotonic()
                self._post(
                    ev.RankStarted("rank_started", now_s, number, rank.rank, rank.pid)
                )
            self._attempt.start_store()
        except SpawnError as error:
            self._cannot("spawn_error", error.exit_code, str(error))
        except OSError as error:
            reason = f"cannot start rank {len(started)}, because {error.strerror}"
            advice = "(raise the limit of processes: ulimit -u, pids.max)"
            self._cannot("pids_limit", 1, f"{reason.lower()} {advice}")
        self._recorder.start(number, () if self._job.output.inherit else started)
        environments = tuple(self._attempt.environments())
        self._inquiry.started(environments)
        self._hangs.started(number, self._inquiry.file.ranks, environments)
        self._attempt.cgroups.started(self._inquiry.file.pids)
        self._onlookers.started()
        priority.be_quick(self._nice)

    def _start_ranks(self) -> Iterator[group.Rank]:
        page = self._attempt.page
        if page is None:
            raise DsupError("cannot start ranks, because nothing was prepared")
        resume_from = self._attempt.view().resume_from
        starts = (
            group.Start(command_line(self._job, rank, resume_from), environment)
            for rank, environment in enumerate(self._attempt.environments())
        )
        return self._ranks.spawn(starts, page.fd, inherit=self._job.output.inherit)

    def _cannot(self, cause: str, code: int, reason: str) -> None:
        number, now_s = self._state.attempt, time.monotonic()
        self._post(ev.Cannot("cannot", now_s, number, cause, code, reason))

    def _situation(self) -> tuple[State, View]:
        return self._state, self._attempt.view()

    def _judge(self, *, final: bool) -> None:
        met = self._state.cannot
        self._inquiry.file.obstacle = (met.cause, met.reason) if met else None
        self._hangs.testify(self._inquiry.file, self._state)
        self._inquiry.file.look_closely(self._attempt.page)
        self._inquiry.judge(final=final)

    def _scan(self) -> None:
        """Look for a checkpoint; what has happened so far is told meanwhile.

        Where no rank has run yet there is no scribe, and the next attempt needs one.
        """
        self._recorder.start(self._state.attempt, ())
        self._attempt.scan()

    def _agree(self, plan: cmd.Propose) -> None:
        """One node agrees with itself."""
        self._post(ev.PlanAgreed("plan_agreed", time.monotonic(), *plan[1:]))

    def _on_rank(self, rank: group.Rank) -> None:
        self._loop.unwatch(rank.pidfd)
        self._inquiry.file.before_reap(rank)
        status = self._ranks.reap(rank)
        now_s, number = time.monotonic(), self._state.attempt
        first = status != 0 and self._state.failed is None
        dying = self._ranks.dying() if first else ()
        self._steps.ended(self._state)
        late_s = self._loop.late_s
        ended = ev.RankExited(
            "rank_exited", now_s, late_s, number, rank.rank, status, dying
        )
        self._inquiry.ended(ended)
        if self._attempt.page:
            self._attempt.page.mark_dead(rank.rank)
        self._post(ended)

    def _on_signals(self) -> None:
        for signum, sender in signals.read(self._signals):
            if signum != signal.SIGCHLD:
                now_s = time.monotonic()
                self._post(ev.Signalled("signalled", now_s, signum, sender))
            elif self._attempt.store_ended():
                reason = "the store of the ranks ended (is torch installed?)"
                self._cannot("store_lost", 1, reason)

    def _on_guard_gone(self, pidfd: int) -> None:
        self._loop.unwatch(pidfd)
        self._post(ev.GuardLost("guard_lost", time.monotonic()))
