"""What dsup does after a failed attempt, in one line of the panel. Pure."""

from __future__ import annotations

import time
from typing import Final

from dsup.core.outcome import failure_of
from dsup.core.plan import Failure, Policy, plan_for, restarts_in_force
from dsup.core.state import Judgement, State
from dsup.core.verdict import Verdict

NO_JUDGE: Final = "no_judge"
"""The rule of a verdict that wait statuses made alone."""


def after_verdict(state: State, verdict: Verdict) -> State:
    """Return the state as it will be once it knows a verdict.

    One that no judge gave changes nothing: then the machine goes by what it knows.
    """
    if verdict.rule == NO_JUDGE:
        return state
    said = Judgement(
        verdict.cause, verdict.first_ranks, verdict.status, verdict.signature
    )
    return state._replace(judgement=said)


def outlook(state: State, offset_s: float, *, located: bool) -> str:
    """Return what comes next; a forecast until the nodes have agreed.

    Args:
        state: it knows the verdict.
        offset_s: CLOCK_REALTIME minus the agent's clock, seconds.
        located: a checkpoint location is known.
    """
    if state.stop is not None:
        return "no restart: the run is being stopped"
    failure = failure_of(state)
    plan = state.plan or plan_for(failure, state.spec.policy)
    if plan.restart_at_s is None:
        return f"no restart, exit {plan.code}: {plan.reason}"
    clock = time.gmtime(plan.restart_at_s + offset_s)
    at = time.strftime("%H:%M:%S", clock)
    number = _number(failure, state.spec.policy)
    return f"restart {number} at {at} UTC, {_from(located)}"


def _number(failure: Failure, policy: Policy) -> str:
    """Return ``1 of 3``: dsup's own budget does not depend on a location."""
    budget = restarts_in_force(policy._replace(checkpoints_known=True))
    return f"{failure.failed_attempts} of {budget}"


def _from(located: bool) -> str:
    return "from the newest checkpoint" if located else "from where the script resumes"
