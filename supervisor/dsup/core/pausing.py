"""The pause between two attempts: what is still awaited, the plan, and the next one.

Theory of operation
-------------------
A plan needs to know how far the run has come and why the attempt failed. So the newest
checkpoint is looked for, and the judge is asked once more, now that the attempt is
over; when both have answered, or ``SCAN_S`` after, the plan is made and put to all
nodes. What they agree upon holds: a restart at a moment that is the same for all, or
the end of the run. Nodes that do not agree in ``AGREE_S`` end.
"""

from __future__ import annotations

from typing import Final

from dsup.core import commands as cmd
from dsup.core import enter, outcome
from dsup.core import events as ev
from dsup.core.enter import Decision
from dsup.core.plan import Plan, plan_for
from dsup.core.state import Stage, State

AGREE_S: Final = 60.0


def on_scanned(state: State, event: ev.Scanned) -> Decision:
    """Remember the newest checkpoint."""
    return _answered(outcome.after_scan(state, event.step), event)


def on_judged(state: State, event: ev.Judged) -> Decision:
    """Remember what the judge says; its word on the whole attempt is waited for."""
    state = outcome.after_judgement(state, event)
    return _answered(state, event) if event.final else (state, ())


def _answered(state: State, event: ev.Scanned | ev.Judged) -> Decision:
    left = state.awaited - {event.kind}
    last = event.kind in state.awaited and not left and state.plan is None
    state = state._replace(awaited=left)
    return _propose(state, event.at_s) if last else (state, ())


def _propose(state: State, at_s: float) -> Decision:
    failure = outcome.failure_of(state)
    plan = plan_for(failure, state.spec.policy)
    proposed = state._replace(
        plan=plan,
        deadline_s=at_s + AGREE_S,
        failed_attempts=failure.failed_attempts,
        signature=failure.signature,
    )
    return proposed, (cmd.Propose("propose", state.attempt, *plan),)


def on_plan_agreed(state: State, event: ev.PlanAgreed) -> Decision:
    """Wait for the moment of the restart, or give up."""
    if state.stage is not Stage.DECIDING:
        return state, ()
    plan = Plan(event.restart_at_s, event.code, event.reason)
    agreed = state._replace(plan=plan, agreed=True)
    if event.restart_at_s is None:
        return enter.over(agreed)
    return agreed._replace(deadline_s=event.restart_at_s), ()


def on_deadline(state: State, at_s: float) -> Decision:
    """Go on without an answer that has not come; after the pause, restart."""
    if state.plan is None:
        return _propose(state, at_s)
    if not state.agreed:
        return enter.over(outcome.without_agreement(state))
    return enter.prepare(outcome.next_attempt(state), at_s)
