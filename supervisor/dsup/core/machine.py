"""The state machine of a run on one node.

``decide`` takes a state and an event and returns the next state and the commands to
carry out. What answers which event is the table at the end of this file; ``enter``
holds what a stage begins with, ``stopping`` what a wish to stop does, ``hanging`` what
a hang does, ``pausing`` what comes between two attempts. All of it is pure (time comes
in with the events) and total (every event is answered in every stage). The edges send
events, carry commands out, and send ``Tick`` when the time of ``deadline`` has come.

Theory of operation
-------------------
A worker group lives and dies together. An attempt goes through these stages:

    STAGE        LEFT WHEN                                      GOES TO
    PREPARING    prepared                                       RUNNING
                 cannot | 60 s | stop                           KILLING
    RUNNING      first death, decisive | all ended              TERMINATING
                 first death, not decisive                      SETTLING
                 hang confirmed, and to be acted upon           CAPTURING
                 stop, every rank stops itself | a rank's wish  PARKING
                 stop, one rank does not                        TERMINATING
                 cannot                                         KILLING
    PARKING      all ended | half the grace | second stop       TERMINATING
                 first death, as from RUNNING (stop: not 143)   SETTLING | TERMINATING
                 second stop, by SIGINT | cannot                KILLING
    CAPTURING    captured | 10 s | all ended | stop             TERMINATING
                 the ranks go on, and none has failed           RUNNING
    SETTLING     decisive or last death | stop                  TERMINATING
                 settle time, short after a decisive note       TERMINATING
    TERMINATING  group empty | grace | second stop              KILLING
                 all ranks ended, and 1 s (success: the grace)  KILLING
    KILLING      group empty                                    DECIDING | OVER
                 5 s                                            OVER (unkillable)
    DECIDING     scanned and judged: a plan is proposed         -
                 a restart was agreed and its time has come     PREPARING
                 giving up was agreed | no agreement | stop     OVER
    OVER         never

Settling: a rank that fails because another one failed often ends first. So after a
death that could be a victim's nobody is signalled until the others had a chance to
show what happened to them; a signal of ours would destroy that evidence. A rank that
told of an exception of its own (a decisive note) is no victim; then the others get just
the moment that shows whether all fail alike.

Capturing: ranks that hang live, so nothing has shown yet where they are. Their stacks
do, and a signal would destroy that evidence, too.

A stop is a field, not a stage: it may come at any time, and shortens whatever is going
on. PARKING is a stage: the ranks are on their way to the check at which all of them
leave by themselves. KILLING is on every way out, success included (unless helpers are
to be kept): a group is proven empty before its attempt is closed, so no attempt ever
starts beside the remains of another. DECIDING is the pause: the newest checkpoint is
looked for, the judge names the cause (it begins when settling ends, so that people know
at once), the plan is made, and put to all nodes. An event of another attempt changes
nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, assert_never

from dsup.core import commands as cmd
from dsup.core import enter, exits, hanging, outcome, pausing, stopping
from dsup.core import events as ev
from dsup.core.enter import ALIKE_S, Decision
from dsup.core.exits import SIGTERM, SIGUSR1, SIGUSR2, is_decisive
from dsup.core.state import NEVER, Obstacle, Spec, Stage, State

EARLY_S: Final = 1.0
"""Ranks that finish together seldom end further apart."""

_HEARING: Final = {Stage.RUNNING, Stage.PARKING, Stage.SETTLING, Stage.CAPTURING}


def initial(spec: Spec) -> State:
    """Return the state before the first event, ``Launched``."""
    return State(spec)


def deadline(state: State) -> float:
    """Return when a ``Tick`` is due, agent clock, seconds; ``NEVER`` for not at all."""
    limit_s = NEVER if state.stop else state.limit_s
    return min(state.deadline_s, limit_s)


def decide(state: State, event: ev.Event) -> Decision:
    """Answer an event. Every event has one answer, and that one answers every stage.

    Args:
        state: what ``initial`` or the last ``decide`` returned.
        event: what happened.

    Returns:
        The next state and the commands that lead there, in order.
    """
    attempt = getattr(event, "attempt", state.attempt)
    if state.stage is Stage.OVER or attempt != state.attempt:
        return state, ()
    return _ANSWERS[type(event)](state, event)


def _on_launched(state: State, event: ev.Launched) -> Decision:
    launched = state.stage is not Stage.PREPARING or state.deadline_s < NEVER
    if launched:
        return state, ()
    after_s = state.spec.stop_after_s
    limit_s = NEVER if after_s is None else event.at_s + after_s
    return enter.prepare(state._replace(limit_s=limit_s), event.at_s)


def _on_prepared(state: State, event: ev.Prepared) -> Decision:
    if state.stage is not Stage.PREPARING:
        return state, ()
    state = state._replace(deadline_s=NEVER, started_s=event.at_s)
    return state._replace(stage=Stage.RUNNING), (cmd.Spawn("spawn", state.attempt),)


def _on_cannot(state: State, event: ev.Cannot) -> Decision:
    match state.stage:
        case Stage.PREPARING | Stage.RUNNING | Stage.PARKING:
            met = Obstacle(event.cause, event.code, event.reason, event.at_s)
            return enter.kill(state._replace(cannot=met), event.at_s)
        case _:
            return state, ()


def _on_rank_started(state: State, event: ev.RankStarted) -> Decision:
    return state._replace(alive=state.alive | {event.rank}), ()


def _on_rank_exited(state: State, event: ev.RankExited) -> Decision:
    if event.rank not in state.alive:
        return state, ()
    state = outcome.after_end(state, event)
    match state.stage:
        case Stage.PARKING:
            return stopping.on_end(state, event)
        case Stage.CAPTURING:
            return hanging.on_end(state, event)
        case Stage.RUNNING if event.status == 0:
            everyone = len(state.ended) == state.spec.world_size
            return enter.leave(state, event.at_s) if everyone else _early(state, event)
        case Stage.RUNNING | Stage.SETTLING | Stage.TERMINATING if not state.alive:
            return enter.linger(state, event.at_s)
        case Stage.SETTLING if is_decisive(event.status):
            return enter.terminate_failed(state, event.at_s)
        case Stage.RUNNING:
            return enter.after_death(state, event)
        case _:
            return state, ()


def _early(state: State, event: ev.RankExited) -> Decision:
    """See, once an attempt, whether the others go on without who ended first."""
    if len(state.ended) > 1:
        return state, ()
    return state._replace(deadline_s=event.at_s + EARLY_S), ()


def _on_noted(state: State, event: ev.Noted) -> Decision:
    if not event.decisive:
        return state, ()
    state = state._replace(noted=state.noted | {event.rank})
    if state.stage is not Stage.SETTLING:
        return state, ()
    soon = min(state.deadline_s, event.at_s + ALIKE_S)
    return state._replace(deadline_s=soon), ()


def _on_helpers_left(state: State, _: ev.HelpersLeft) -> Decision:
    if state.stage is not Stage.TERMINATING or not state.succeeded:
        return state, ()
    return state, (cmd.TerminateHelpers("terminate_helpers", state.attempt),)


def _on_group_empty(state: State, event: ev.GroupEmpty) -> Decision:
    match state.stage:
        case Stage.TERMINATING if not state.alive:
            return enter.kill(state, event.at_s)
        case Stage.KILLING:
            return _emptied(state, event.at_s)
        case _:
            return state, ()


def _emptied(state: State, at_s: float) -> Decision:
    if state.abandoned or state.succeeded or state.stop:
        return enter.over(state)
    return enter.deciding(state, at_s)


def _on_progressed(state: State, event: ev.Progressed) -> Decision:
    return outcome.after_step(state, event.step), ()


def _on_stepped(state: State, _: ev.Stepped) -> Decision:
    return state, ()


def _on_took_over(state: State, event: ev.TookOver) -> Decision:
    return outcome.after_takeover(state, event), ()


def _on_signalled(state: State, event: ev.Signalled) -> Decision:
    if event.signum in {SIGUSR1, SIGUSR2}.difference(state.spec.also_stop):
        if state.stage not in _HEARING:
            return state, ()
        ranks = tuple(sorted(state.alive))
        return state, (cmd.PassOn("pass_on", state.attempt, ranks, event.signum),)
    asked = event.sender_uid is not None
    return (stopping.on_asked if asked else stopping.on_signal)(state, event)


def _on_guard_lost(state: State, event: ev.GuardLost) -> Decision:
    return enter.kill(state._replace(abandoned=True), event.at_s)


def _on_loop_stalled(state: State, event: ev.LoopStalled) -> Decision:
    return outcome.after_stall(state, event.gap_s), ()


def _on_tick(state: State, event: ev.Tick) -> Decision:
    if state.stop is None and state.limit_s <= event.at_s < NEVER:
        return stopping.on_limit(state, event.at_s)
    if event.at_s < state.deadline_s:
        return state, ()
    return _on_deadline(state, event)


def _on_deadline(state: State, event: ev.Tick) -> Decision:
    match state.stage:
        case Stage.PREPARING:
            reason = f"the preparation of attempt {state.attempt} did not end in time"
            late = Obstacle("storage_io", 1, reason, event.at_s)
            return enter.kill(state._replace(cannot=late), event.at_s)
        case Stage.PARKING:
            return stopping.on_tick(state, event.at_s)
        case Stage.SETTLING | Stage.CAPTURING:
            return enter.terminate_failed(state, event.at_s)
        case Stage.TERMINATING:
            return _end_of_grace(state, event.at_s)
        case Stage.KILLING:
            stuck = Obstacle("unkillable", exits.NODE_UNFIT, "", event.at_s)
            return enter.over_stuck(state, stuck)
        case Stage.DECIDING:
            return pausing.on_deadline(state, event.at_s)
        case Stage.RUNNING | Stage.OVER:
            return state._replace(deadline_s=NEVER), ()
        case _:
            assert_never(state.stage)


def _end_of_grace(state: State, at_s: float) -> Decision:
    """Kill at its end; at its half SIGTERM follows a signal that was another."""
    if at_s >= state.kill_s:
        return enter.kill(state, at_s)
    return state._replace(deadline_s=state.kill_s), (enter.signal_all(state, SIGTERM),)


_ANSWERS: Final[Mapping[type[ev.Event], Callable[[State, Any], Decision]]] = {
    ev.Launched: _on_launched,
    ev.Prepared: _on_prepared,
    ev.Cannot: _on_cannot,
    ev.RankStarted: _on_rank_started,
    ev.RankExited: _on_rank_exited,
    ev.Noted: _on_noted,
    ev.SelfStopping: stopping.on_self_stopping,
    ev.StopWanted: stopping.on_wanted,
    ev.ChecksCounted: stopping.on_counted,
    ev.HelpersLeft: _on_helpers_left,
    ev.GroupEmpty: _on_group_empty,
    ev.Progressed: _on_progressed,
    ev.Stepped: _on_stepped,
    ev.TookOver: _on_took_over,
    ev.HangSuspected: hanging.on_suspected,
    ev.HangCleared: hanging.on_cleared,
    ev.HangConfirmed: hanging.on_confirmed,
    ev.Captured: hanging.on_captured,
    ev.Straggles: hanging.on_straggles,
    ev.Scanned: pausing.on_scanned,
    ev.Judged: pausing.on_judged,
    ev.PlanAgreed: pausing.on_plan_agreed,
    ev.Signalled: _on_signalled,
    ev.GuardLost: _on_guard_lost,
    ev.LoopStalled: _on_loop_stalled,
    ev.Tick: _on_tick,
}
