"""What an attempt amounts to: its first rank, its progress, its failure, its code.

Pure readings of a state; which stage follows from them is ``machine``'s business.
"""

from __future__ import annotations

from typing import Literal

from dsup.core import events as ev
from dsup.core.exits import (
    BUG,
    LOST,
    NODE_UNFIT,
    OK,
    SIGKILL,
    heeds_stop,
    is_decisive,
    provisional_cause,
    signal_name,
    stop_code,
)
from dsup.core.plan import Failure, Plan
from dsup.core.state import NOBODY, Death, Judgement, Stage, State


def first_rank(state: State) -> Death | None:
    """Return the end that began it, as far as exit order and wait statuses tell.

    A victim may end before its culprit: the kernel takes a killed rank's memory down
    first, and writes a core file, before anybody is told. So a suspect's death goes
    before the first one seen, if it is one that nobody else can cause.
    """
    if state.failed is None or is_decisive(state.failed.status):
        return state.failed
    for death in state.ended:
        if death.rank in state.suspects and is_decisive(death.status):
            return death
    return state.failed


def lost(state: State) -> tuple[int, str]:
    """Return which rank the others have lost, and in a few words how.

    The rank is ``NOBODY`` where it is not one alone.
    """
    death, hang = first_rank(state), state.hang
    if death is not None:
        code = f"ended with exit code {death.status}"
        how = code if death.status >= 0 else f"died of {signal_name(-death.status)}"
        return death.rank, f"rank {death.rank} {how}"
    if hang is not None and len(hang.ranks) == 1:
        return hang.ranks[0], f"rank {hang.ranks[0]} hangs"
    return NOBODY, "ranks hang"


def failure_of(state: State) -> Failure:
    """Return what the plan needs to know about the attempt that just failed."""
    cause, rank, status, _ = signature = _signature(state)
    began = state.failed or state.cannot or state.hang
    at_s = began.at_s if began else state.started_s
    forgiven = (
        state.progressed and at_s - state.started_s >= state.spec.policy.healthy_after_s
    )
    return Failure(
        cause=cause,
        rank=rank,
        status=status,
        reason=state.cannot.reason if state.cannot else "",
        at_s=at_s,
        failed_attempts=1 if forgiven else state.failed_attempts + 1,
        progressed=state.progressed,
        signature=signature,
        repeated=state.signature == signature,
        resumable=state.spec.policy.checkpoints_known or state.best_step is not None,
        hung=state.hang is not None,
        last=state.hang is not None and state.spec.on_hang == "stop",
    )


def _signature(state: State) -> tuple[str, int | None, int, str]:
    """Return cause, rank, status and mark: the judge's, or what exits alone tell."""
    if state.cannot is not None:
        return state.cannot.cause, None, state.cannot.code, ""
    if state.judgement is not None:
        cause, ranks, status, mark = state.judgement
        return cause, ranks[0] if len(ranks) == 1 else None, status, mark
    death = first_rank(state)
    if death is None and state.hang is not None:
        ranks = state.hang.ranks
        return "hang", ranks[0] if len(ranks) == 1 else None, 1, state.hang.place
    if death is None:
        return "unknown", None, 1, ""
    return provisional_cause(death.status), death.rank, death.status, ""


def after_end(state: State, event: ev.RankExited) -> State:
    """Return the state that knows of a rank's end."""
    death = Death(event.rank, event.status, event.at_s)
    state = state._replace(
        alive=state.alive - {event.rank}, ended=(*state.ended, death)
    )
    match state.stage:
        case Stage.PARKING if state.stop and heeds_stop(event.status):
            return state
        case Stage.RUNNING | Stage.PARKING if event.status != 0:
            return state._replace(failed=death, suspects=event.dying)
        case Stage.SETTLING:
            return state._replace(suspects=(*state.suspects, event.rank))
        case _:
            return state


def after_judgement(state: State, event: ev.Judged) -> State:
    """Return the state that knows the judge's answer; silence keeps the one before."""
    if not event.cause:
        return state
    said = Judgement(event.cause, event.first_ranks, event.status, event.signature)
    return state._replace(judgement=said)


def after_step(state: State, step: int) -> State:
    """Return the state that knows that all ranks have finished a step."""
    if state.best_step is not None and step <= state.best_step:
        return state
    return state._replace(best_step=step, progressed=True)


def after_takeover(state: State, event: ev.TookOver) -> State:
    """Return the state that goes on where the run before was cut off.

    The attempt that runs goes on even if no restart is left after it.
    """
    known = [step for step in (state.best_step, event.best_step) if step is not None]
    return state._replace(
        failed_attempts=state.failed_attempts + event.failed_attempts,
        best_step=max(known, default=None),
    )


def after_scan(state: State, step: int | None) -> State:
    """Return the state that knows the newest checkpoint's step, None for none.

    One that is newer than the last one known was left by the attempt that just ended.
    """
    if step is None:
        return state
    known = state.checkpoint_step
    new = state.stage is Stage.DECIDING and (known is None or step > known)
    return state._replace(checkpoint_step=step, progressed=state.progressed or new)


def after_stall(state: State, gap_s: float) -> State:
    """Return the state whose limits start again after the agent itself stood still.

    The moment of an agreed restart is no limit: it stays where it is.
    """
    if state.agreed:
        return state
    return state._replace(
        deadline_s=state.deadline_s + gap_s, kill_s=state.kill_s + gap_s
    )


def without_agreement(state: State) -> State:
    """Return the state of a node that has heard nothing of the others' plans."""
    reason = "the nodes did not agree on a plan in time"
    return state._replace(plan=Plan(None, LOST, reason))


def next_attempt(state: State) -> State:
    """Return a state that remembers of the attempts before only what policy needs."""
    return State(
        state.spec,
        attempt=state.attempt + 1,
        limit_s=state.limit_s,
        best_step=state.best_step,
        checkpoint_step=state.checkpoint_step,
        failed_attempts=state.failed_attempts,
        signature=state.signature,
    )


def exit_of(state: State) -> tuple[int, Literal["rank", "dsup"]]:
    """Return the exit code of a run that is over, and whose code that is."""
    if state.cannot is not None and state.cannot.cause == "unkillable":
        return NODE_UNFIT, "dsup"
    if state.abandoned:
        return stop_code(SIGKILL), "dsup"
    if state.succeeded:
        return OK, "rank"
    if state.stop is not None:
        return stop_code(state.stop.signum), "dsup"
    if state.plan is None:
        return BUG, "dsup"
    failure = failure_of(state)
    own = state.failed is not None and failure.status == state.plan.code
    return state.plan.code, "rank" if own else "dsup"
