"""The state machine of a run on one node.

Everything that affects the machine or its transitions lives in this file: ``decide``
takes a state and an event and returns the next state and the commands to carry out.
It is pure (time comes in with the events) and total (every event is answered in every
stage). The edges send events, carry commands out, and send ``Tick`` when the time of
``deadline`` has come.

Theory of operation
-------------------
A worker group lives and dies together. An attempt goes through these stages:

    STAGE        LEFT WHEN                                      GOES TO
    PREPARING    prepared                                       RUNNING
                 cannot | 60 s | stop                           KILLING
    RUNNING      first death, decisive | stop | all ended       TERMINATING
                 first death, not decisive                      SETTLING
                 cannot                                         KILLING
    SETTLING     decisive or last death | settle time | stop    TERMINATING
    TERMINATING  group empty | grace | second stop              KILLING
                 all ranks ended, and 1 s (success: the grace)  KILLING
    KILLING      group empty                                    DECIDING | OVER
                 5 s                                            OVER (unkillable)
    DECIDING     a restart was agreed and its time has come     PREPARING
                 giving up was agreed | no agreement | stop     OVER
    OVER         never

Settling: a rank that fails because another one failed often ends first. So after a
death that could be a victim's nobody is signalled until the others had a chance to
show what happened to them; a signal of ours would destroy that evidence.

A stop is a field, not a stage: it may come at any time, and shortens whatever is going
on. KILLING is on every way out, success included (unless helpers are to be kept): a
group is proven empty before its attempt is closed, so no attempt ever starts beside
the remains of another. DECIDING is the pause: the newest checkpoint is looked for, the
plan made, and put to all nodes. An event of another attempt changes nothing.
"""

from __future__ import annotations

from typing import Final, TypeAlias, assert_never

from dsup.core import commands as cmd
from dsup.core import events as ev
from dsup.core import exits, outcome
from dsup.core.exits import SIGINT, SIGTERM, SIGUSR1, SIGUSR2, is_decisive
from dsup.core.plan import Plan, plan_for
from dsup.core.state import NEVER, Obstacle, Spec, Stage, State, Stop

PREPARE_S: Final = 60.0
KILL_S: Final = 5.0
LINGER_S: Final = 1.0
SCAN_S: Final = 30.0
AGREE_S: Final = 60.0
STOP_REPEAT_S: Final = 1.0
SECOND_STOP_S: Final = 5.0

Decision: TypeAlias = tuple[State, tuple[cmd.Command, ...]]


def initial(spec: Spec) -> State:
    """Return the state before the first event, ``Launched``."""
    return State(spec)


def deadline(state: State) -> float:
    """Return when a ``Tick`` is due, agent clock, seconds; ``NEVER`` for not at all."""
    return state.deadline_s


def decide(state: State, event: ev.Event) -> Decision:  # noqa: C901, PLR0912
    """Answer an event. One case an event; every case answers every stage.

    Args:
        state: what ``initial`` or the last ``decide`` returned.
        event: what happened.

    Returns:
        The next state and the commands that lead there, in order.
    """
    attempt = getattr(event, "attempt", state.attempt)
    if state.stage is Stage.OVER or attempt != state.attempt:
        return state, ()
    match event:
        case ev.Launched():
            return _on_launched(state, event)
        case ev.Prepared():
            return _on_prepared(state, event)
        case ev.Cannot():
            return _on_cannot(state, event)
        case ev.RankStarted():
            return state._replace(alive=state.alive | {event.rank}), ()
        case ev.RankExited():
            return _on_rank_exited(state, event)
        case ev.HelpersLeft():
            return _on_helpers_left(state)
        case ev.GroupEmpty():
            return _on_group_empty(state, event)
        case ev.Progressed():
            return outcome.after_step(state, event.step), ()
        case ev.Scanned():
            return _on_scanned(state, event)
        case ev.PlanAgreed():
            return _on_plan_agreed(state, event)
        case ev.Signalled():
            return _on_signalled(state, event)
        case ev.GuardLost():
            return _kill(state._replace(abandoned=True), event.at_s)
        case ev.LoopStalled():
            return outcome.after_stall(state, event.gap_s), ()
        case ev.Tick():
            return _on_tick(state, event)
        case _:
            assert_never(event)


def _on_launched(state: State, event: ev.Launched) -> Decision:
    launched = state.stage is not Stage.PREPARING or state.deadline_s < NEVER
    return (state, ()) if launched else _prepare(state, event.at_s)


def _on_prepared(state: State, event: ev.Prepared) -> Decision:
    if state.stage is not Stage.PREPARING:
        return state, ()
    state = state._replace(deadline_s=NEVER, started_s=event.at_s)
    return state._replace(stage=Stage.RUNNING), (cmd.Spawn("spawn", state.attempt),)


def _on_cannot(state: State, event: ev.Cannot) -> Decision:
    match state.stage:
        case Stage.PREPARING | Stage.RUNNING:
            met = Obstacle(event.cause, event.code, event.reason, event.at_s)
            return _kill(state._replace(cannot=met), event.at_s)
        case _:
            return state, ()


def _on_rank_exited(state: State, event: ev.RankExited) -> Decision:
    if event.rank not in state.alive:
        return state, ()
    state = outcome.after_end(state, event)
    match state.stage:
        case Stage.RUNNING if event.status == 0:
            everyone = len(state.ended) == state.spec.world_size
            return _succeed(state, event.at_s) if everyone else (state, ())
        case Stage.RUNNING | Stage.SETTLING | Stage.TERMINATING if not state.alive:
            return _linger(state, event.at_s)
        case Stage.RUNNING:
            return _first_death(state, event)
        case Stage.SETTLING if is_decisive(event.status):
            return _terminate(state, event.at_s, SIGTERM)
        case _:
            return state, ()


def _first_death(state: State, event: ev.RankExited) -> Decision:
    if is_decisive(event.status):
        return _terminate(state, event.at_s, SIGTERM)
    settle_until = event.at_s + state.spec.settle_s
    return state._replace(stage=Stage.SETTLING, deadline_s=settle_until), ()


def _on_helpers_left(state: State) -> Decision:
    if state.stage is not Stage.TERMINATING or not state.succeeded:
        return state, ()
    return state, (cmd.TerminateHelpers("terminate_helpers", state.attempt),)


def _on_group_empty(state: State, event: ev.GroupEmpty) -> Decision:
    match state.stage:
        case Stage.TERMINATING if not state.alive:
            return _kill(state, event.at_s)
        case Stage.KILLING:
            return _emptied(state, event.at_s)
        case _:
            return state, ()


def _emptied(state: State, at_s: float) -> Decision:
    if state.abandoned or state.succeeded or state.stop:
        return _over(state)
    deciding = state._replace(stage=Stage.DECIDING, deadline_s=at_s + SCAN_S)
    close = cmd.CloseAttempt("close_attempt", state.attempt)
    return deciding, (close, cmd.Scan("scan", state.attempt))


def _on_scanned(state: State, event: ev.Scanned) -> Decision:
    state = outcome.after_scan(state, event.step)
    wanted = state.stage is Stage.DECIDING and state.plan is None
    return _propose(state, event.at_s) if wanted else (state, ())


def _propose(state: State, at_s: float) -> Decision:
    failure = outcome.failure_of(state)
    plan = plan_for(failure, state.spec.policy)
    proposed = state._replace(
        plan=plan,
        deadline_s=at_s + AGREE_S,
        failed_attempts=failure.failed_attempts,
        signature=(failure.cause, failure.rank, failure.status),
    )
    return proposed, (cmd.Propose("propose", state.attempt, *plan),)


def _on_plan_agreed(state: State, event: ev.PlanAgreed) -> Decision:
    if state.stage is not Stage.DECIDING:
        return state, ()
    plan = Plan(event.restart_at_s, event.code, event.reason)
    agreed = state._replace(plan=plan, agreed=True)
    if event.restart_at_s is None:
        return _over(agreed)
    return agreed._replace(deadline_s=event.restart_at_s), ()


def _on_signalled(state: State, event: ev.Signalled) -> Decision:
    if event.signum in {SIGUSR1, SIGUSR2}.difference(state.spec.also_stop):
        if state.stage not in {Stage.RUNNING, Stage.SETTLING}:
            return state, ()
        ranks = tuple(sorted(state.alive))
        return state, (cmd.PassOn("pass_on", state.attempt, ranks, event.signum),)
    stop = state.stop
    if stop is None:
        first = Stop(event.signum, 1, event.at_s)
        return _first_stop(state._replace(stop=first), event)
    if event.at_s - stop.last_s < STOP_REPEAT_S:
        return state, ()
    again = Stop(stop.signum, stop.times + 1, event.at_s)
    return _further_stop(state._replace(stop=again), event)


def _first_stop(state: State, event: ev.Signalled) -> Decision:
    match state.stage:
        case Stage.RUNNING | Stage.SETTLING if state.alive:
            return _terminate(state, event.at_s, event.signum)
        case Stage.TERMINATING if state.succeeded:
            return _kill(state, event.at_s)
        case Stage.PREPARING | Stage.RUNNING | Stage.SETTLING:
            return _kill(state, event.at_s)
        case Stage.TERMINATING | Stage.KILLING | Stage.OVER:
            return state, ()
        case Stage.DECIDING:
            return _over(state)
        case _:
            assert_never(state.stage)


def _further_stop(state: State, event: ev.Signalled) -> Decision:
    impatient = event.signum == SIGINT or (state.stop and state.stop.times > 2)  # noqa: PLR2004
    match state.stage:
        case Stage.TERMINATING if impatient:
            return _kill(state, event.at_s)
        case Stage.TERMINATING:
            soon = min(state.kill_s, event.at_s + SECOND_STOP_S)
            hurried = state._replace(deadline_s=soon, kill_s=soon)
            another = state.stop and event.signum != state.stop.signum
            return hurried, (_signal(state, event.signum),) if another else ()
        case _:
            return state, ()


def _on_tick(state: State, event: ev.Tick) -> Decision:
    if event.at_s < state.deadline_s:
        return state, ()
    match state.stage:
        case Stage.PREPARING:
            reason = f"the preparation of attempt {state.attempt} did not end in time"
            late = Obstacle("storage_io", 1, reason, event.at_s)
            return _kill(state._replace(cannot=late), event.at_s)
        case Stage.SETTLING:
            return _terminate(state, event.at_s, SIGTERM)
        case Stage.TERMINATING:
            return _end_of_grace(state, event.at_s)
        case Stage.KILLING:
            stuck = Obstacle("unkillable", exits.NODE_UNFIT, "", event.at_s)
            return _over(state._replace(cannot=stuck))
        case Stage.DECIDING:
            return _end_of_pause(state, event.at_s)
        case Stage.RUNNING | Stage.OVER:
            return state, ()
        case _:
            assert_never(state.stage)


def _end_of_grace(state: State, at_s: float) -> Decision:
    """Kill at its end; at its half SIGTERM follows a signal that was another."""
    if at_s >= state.kill_s:
        return _kill(state, at_s)
    return state._replace(deadline_s=state.kill_s), (_signal(state, SIGTERM),)


def _end_of_pause(state: State, at_s: float) -> Decision:
    if state.plan is None:
        return _propose(state, at_s)
    if not state.agreed:
        return _over(outcome.without_agreement(state))
    return _prepare(outcome.next_attempt(state), at_s)


def _prepare(state: State, at_s: float) -> Decision:
    preparing = state._replace(
        stage=Stage.PREPARING, deadline_s=at_s + PREPARE_S, started_s=at_s
    )
    return preparing, (cmd.Prepare("prepare", preparing.attempt),)


def _succeed(state: State, at_s: float) -> Decision:
    succeeded = state._replace(succeeded=True)
    if state.spec.keep_helpers:
        return _over(succeeded)
    kill_s = at_s + state.spec.grace_s
    return succeeded._replace(
        stage=Stage.TERMINATING, deadline_s=kill_s, kill_s=kill_s
    ), ()


def _terminate(state: State, at_s: float, signum: int) -> Decision:
    grace_s = state.spec.grace_s
    next_look_s = at_s + (grace_s if signum == SIGTERM else grace_s / 2)
    terminating = state._replace(
        stage=Stage.TERMINATING, deadline_s=next_look_s, kill_s=at_s + grace_s
    )
    return terminating, (_signal(state, signum),)


def _signal(state: State, signum: int) -> cmd.SignalRanks:
    ranks = tuple(sorted(state.alive))
    return cmd.SignalRanks("signal_ranks", state.attempt, ranks, signum)


def _linger(state: State, at_s: float) -> Decision:
    """Let helpers end by themselves: one of them unlinks the ranks' shared memory."""
    until = min(state.kill_s, at_s + LINGER_S)
    return state._replace(stage=Stage.TERMINATING, deadline_s=until, kill_s=until), ()


def _kill(state: State, at_s: float) -> Decision:
    state = state._replace(stage=Stage.KILLING, deadline_s=at_s + KILL_S)
    return state, (cmd.KillAll("kill_all", state.attempt),)


def _over(state: State) -> Decision:
    code, origin = outcome.exit_of(state)
    over = state._replace(stage=Stage.OVER, deadline_s=NEVER)
    close = cmd.CloseAttempt("close_attempt", state.attempt)
    closed = () if state.stage is Stage.DECIDING else (close,)
    return over, (*closed, cmd.Exit("exit", code, origin))
