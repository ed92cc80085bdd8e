"""What the agent says on the console: one event and its two states, one or no line.

Pure. The lines answer, in this order, what a person at two in the morning asks: which
rank went first, how, what dsup does about it, and where to look.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from dsup.core import events as ev
from dsup.core.enter import CAPTURE_S
from dsup.core.exits import CAUSES, signal_name
from dsup.core.job import Job
from dsup.core.output import Tone
from dsup.core.printable import printable
from dsup.core.state import NEVER, Stage, State
from dsup.report import stops
from dsup.report.sentences import ranks

STALL_WORTH_SAYING_S: Final = 5.0
"""A busy node makes the agent late by less than that; the journal keeps those."""


_OF_A_HANG: Final = (
    *(ev.HangSuspected, ev.HangCleared, ev.HangConfirmed),
    *(ev.Captured, ev.Straggles),
)


class View(NamedTuple):
    """What lines need beside the state.

    Attributes:
        job: what was asked for.
        pids: pid of each rank of this attempt.
        resume_from: checkpoint of this attempt; empty for none.
        steps: the last step of each rank that tells its steps.
    """

    job: Job
    pids: Mapping[int, int]
    resume_from: str
    steps: Mapping[int, int] = {}


def lines(before: State, event: ev.Event, after: State, view: View) -> tuple[str, ...]:
    """Return what is to be said about an event, most often nothing.

    Args:
        before: the state the event met.
        event: what happened.
        after: the state it led to.
        view: the rest.
    """
    said = _lines(before, event, after, view)
    parts = (said,) if isinstance(said, str) else said
    return tuple(printable(part) for part in parts if part)


def tone(event: ev.Event, after: State) -> Tone:  # noqa: C901 (one case an event)
    """Return how grave the line about an event is.

    Args:
        event: what happened.
        after: the state it led to.
    """
    match event:
        case ev.RankExited() | ev.Cannot() | ev.GuardLost():
            return "failure"
        case ev.HangConfirmed() | ev.Captured():
            return "failure" if after.hang else "warning"
        case ev.Tick() if after.stage is Stage.RUNNING:
            most = 2 * len(after.ended) > after.spec.world_size
            return "plain" if most else "warning"
        case ev.Tick() if after.stage is Stage.OVER:
            return "failure"
        case ev.GroupEmpty() if after.stop:
            return "warning"
        case ev.PlanAgreed():
            again = after.plan is not None and after.plan.restart_at_s is not None
            return "warning" if again else "failure"
        case ev.Tick() | ev.Signalled() | ev.HelpersLeft() | ev.LoopStalled():
            return "warning"
        case ev.StopWanted() | ev.HangSuspected() | ev.Straggles() | ev.TookOver():
            return "warning"
        case _:
            return "plain"


def _lines(  # noqa: C901 (one case an event)
    before: State, event: ev.Event, after: State, view: View
) -> str | tuple[str, ...]:
    entered = after.stage if after.stage is not before.stage else None
    match event:
        case ev.Prepared() if entered is Stage.RUNNING:
            return _started(after, view)
        case ev.Cannot() if entered is Stage.KILLING:
            return event.reason
        case _ if entered is Stage.OVER and (after.plan is None or after.stop):
            return _over(after, view)
        case ev.Signalled() | ev.StopWanted() | ev.Tick() if stops.is_news(
            before, after
        ):
            return stops.line(before, event, after)
        case ev.RankExited():
            return _ended(before, event, after, view)
        case ev.HelpersLeft() if after.succeeded:
            return _helpers(event, after)
        case ev.PlanAgreed() if before.stage is Stage.DECIDING:
            return _plan(after, view, event.at_s)
        case ev.GuardLost():
            return "the guard has gone: killing what is left"
        case ev.LoopStalled() if event.gap_s >= STALL_WORTH_SAYING_S:
            return (
                f"the agent did not run for {event.gap_s:.1f} s (stopped, starved or "
                "suspended): limits start again"
            )
        case ev.Tick() if after.stage is Stage.RUNNING and before.deadline_s < NEVER:
            early = ranks(end.rank for end in after.ended)
            return f"{early} ended with 0, {ranks(after.alive)} still running"
        case ev.Tick():
            return _tick(before, after, entered, view)
        case _:
            return _finding(before, event, after)


def _finding(before: State, event: ev.Event, after: State) -> str:
    if isinstance(event, ev.TookOver):
        from dsup.report import takeover

        return takeover.line(event)
    if not isinstance(event, _OF_A_HANG):
        return ""
    from dsup.report import hangs

    return hangs.line(before, event, after)


def how(status: int) -> str:
    """Return how a rank ended, from its exit code or minus its signal number."""
    if status < 0:
        return f"was killed by {signal_name(-status)}"
    return f"ended with exit code {status}"


def _started(state: State, view: View) -> str:
    job = view.job
    number = "" if state.attempt == 0 else f"attempt {state.attempt}: "
    size = state.spec.world_size
    threads = ""
    if size > 1 and "OMP_NUM_THREADS" not in job.environment and not state.attempt:
        threads = "; OMP_NUM_THREADS=1 as torchrun sets it"
    plural = "s" if size > 1 else ""
    where = f"logs in {job.run_dir}"
    if not job.rank_logs:
        where = f"without logs; journal in {job.run_dir}"
    elif job.output.inherit:
        where = (
            f"on these streams themselves, so without logs; journal in {job.run_dir}"
        )
    what = f"{number}{size} rank{plural} of {job.program}{_resumed(view)}"
    return f"{what}; {where}{threads}"


def _resumed(view: View) -> str:
    """Say what is resumed from, and above all when nothing is."""
    location = view.job.checkpoint_dir or view.job.checkpoint_glob
    if view.resume_from:
        return f", resuming from {view.resume_from}"
    return f", from the beginning: no checkpoint in {location}" if location else ""


def _rank(rank: int, view: View) -> str:
    return f"rank {rank} (pid {view.pids.get(rank, '?')})"


def _ended(before: State, event: ev.RankExited, after: State, view: View) -> str:
    if before.failed is None and after.failed:
        return _first_death(after, view)
    if before.stage is Stage.CAPTURING and event.status:
        return f"{_rank(event.rank, view)} {how(event.status)} while stacks were taken"
    ended = after.stage is Stage.TERMINATING is not before.stage
    return _decisive_death(event, after, view) if ended and after.alive else ""


def _first_death(state: State, view: View) -> str:
    death = state.failed
    if death is None:
        return ""
    said = f"{_rank(death.rank, view)} {how(death.status)}, the first to fail"
    early = [end.rank for end in state.ended if end.status == 0]
    if early:
        said += f" ({ranks(early)} had ended with 0 before)"
    at_once = state.stage is Stage.SETTLING and state.deadline_s <= death.at_s
    if not state.alive or at_once:  # the tick that follows says whom it ends
        return said
    others = ranks(state.alive)
    if state.stage is Stage.SETTLING:
        listen = f"{state.deadline_s - death.at_s:.2g} s"
        return f"{said}; listening to {others} for up to {listen} before ending the run"
    return f"{said}; ending {others}"


def _decisive_death(event: ev.RankExited, state: State, view: View) -> str:
    who = _rank(event.rank, view)
    return f"{who} {how(event.status)}; ending {ranks(state.alive)}"


def _helpers(event: ev.HelpersLeft, state: State) -> str:
    names = ", ".join(event.names)
    more = " and others" if event.total > len(event.names) else ""
    return (
        f"every rank ended with 0, but processes they started live on: {names}{more}; "
        f"SIGTERM now, SIGKILL after {state.spec.grace_s:g} s (--keep-helpers spares "
        "them)"
    )


def _plan(state: State, view: View, now_s: float) -> tuple[str, ...]:
    plan = state.plan
    if plan is None:
        return ()
    if plan.restart_at_s is not None:
        pause_s = plan.restart_at_s - now_s
        when = "now" if pause_s < 1 else f"in {pause_s:.0f} s"
        where = _resume_point(state)
        return (f"restart {state.attempt + 1} {when}{where}: {plan.reason}",)
    where = view.job.run_dir
    return (f"given up with exit code {plan.code}: {plan.reason}; see {where}",)


def _resume_point(state: State) -> str:
    """Say which step the restart resumes from, and what is lost."""
    if state.checkpoint_step is None:
        return ""
    from_step = f", from step {state.checkpoint_step}"
    if state.best_step is None or state.best_step <= state.checkpoint_step:
        return from_step
    again = state.best_step - state.checkpoint_step
    return f"{from_step} ({again} steps are done again)"


def _tick(
    before: State, after: State, entered: Stage | None, view: View
) -> str | tuple[str, ...]:
    match entered:
        case Stage.TERMINATING:
            return _ending(before, after)
        case Stage.KILLING if after.cannot:
            return after.cannot.reason
        case Stage.KILLING if before.alive:
            return f"{ranks(before.alive)} did not end in time: SIGKILL"
        case Stage.KILLING:
            return "what the ranks left behind did not end: SIGKILL"
        case Stage.OVER:
            return _plan(after, view, 0.0)
        case _:
            return ""


def _ending(before: State, after: State) -> str:
    match before.stage:
        case Stage.PARKING:
            return stops.given_up(after)
        case Stage.CAPTURING:
            return f"no stacks within {CAPTURE_S:g} s; ending {ranks(after.alive)}"
        case _:
            return f"ending {ranks(after.alive)}"


def _over(state: State, view: View) -> str:
    if state.cannot is not None and state.cannot.cause == "unkillable":
        return _unkillable(state, view)
    if state.succeeded:
        again = f"finished in attempt {state.attempt}: every rank ended with 0"
        return stops.as_wanted(state) or (again if state.attempt else "")
    how_ = stops.by_whom(state)
    if not how_:
        return ""
    logs = view.job.rank_logs and not view.job.output.inherit
    what = "logs" if logs else "journal"
    return f"{how_}; {what} in {view.job.run_dir}"


def _unkillable(state: State, view: View) -> str:
    stuck = ", ".join(_rank(rank, view) for rank in sorted(state.alive))
    meaning = CAUSES["unkillable"].meaning
    who = stuck or "a process of the ranks"
    return (
        f"cannot end {who}, because {meaning}: in state D the node is unfit (look at "
        "/proc/PID/stack and the kernel log, then reboot it); one that has become "
        "another user's must be ended by that user"
    )
