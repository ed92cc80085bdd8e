"""What a command of the user's is told about a run, ``dsup.event/1``. Pure.

    run_started      the ranks of the first attempt run
    attempt_started  the ranks of an attempt run
    hang_suspected   ranks show no sign of life or progress; nothing is done yet
    attempt_failed   with its verdict
    restarting       when, and from which step
    stopping         somebody wants the run to end
    run_ended        with its exit code

Each is one JSON object with ``schema``, ``event``, ``run``, ``run_dir``, ``node``,
``at`` and ``attempt``; the rest is its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from dsup.core import events as ev
from dsup.core.printable import printable
from dsup.core.state import Stage, State
from dsup.core.verdict import Verdict
from dsup.report import stops
from dsup.report.snapshot import Name
from dsup.report.verdict_file import capped, stamp

SCHEMA: Final = "dsup.event/1"
LAST: Final = "run_ended"

_TEXT_MAX_CHARS: Final = 300


def notices(
    before: State, event: ev.Event, after: State, verdict: Verdict | None
) -> Iterator[dict[str, Any]]:
    """Yield what an event is worth telling, most often nothing.

    Args:
        before: the state that the event met.
        event: what happened.
        after: the state it led to.
        verdict: of the attempt; None while there is none.
    """
    entered = after.stage if after.stage is not before.stage else None
    if entered is Stage.RUNNING:
        if after.attempt == 0:
            yield {"event": "run_started", "world_size": after.spec.world_size}
        yield {"event": "attempt_started", "world_size": after.spec.world_size}
    if isinstance(event, ev.HangSuspected) and after.suspected is not None:
        ranks = list(event.ranks)
        yield {"event": "hang_suspected", "ranks": ranks, "why": event.why}
    if _wishes(after) and not _wishes(before):
        yield {"event": "stopping", "why": _text(stops.reason(after))}
    over = entered is Stage.OVER
    planned = isinstance(event, ev.PlanAgreed) and before.stage is Stage.DECIDING
    if (planned or over) and not before.agreed and _failed(after):
        yield {"event": "attempt_failed", "verdict": verdict and _told(verdict)}
    plan = after.plan
    if planned and not over and plan is not None and plan.restart_at_s is not None:
        in_s = round(max(0.0, plan.restart_at_s - event.at_s), 3)
        yield {
            "event": "restarting",
            "attempt": after.attempt + 1,
            "in_s": in_s,
            "from_step": after.checkpoint_step,
            "why": printable(plan.reason),
        }


def ended(after: State, code: int, origin: str) -> dict[str, Any]:
    """Return the last event of a run.

    Args:
        after: the state that it ended in.
        code: exit code of the run.
        origin: ``rank`` or ``dsup``: whose code that is.
    """
    outcome = "failed"
    if after.succeeded:
        outcome = "succeeded"
    elif after.stop is not None and not after.abandoned:
        outcome = "stopped"
    return {"event": LAST, "outcome": outcome, "code": code, "origin": origin}


def complete(
    told: Mapping[str, Any], name: Name, attempt: int, wall_s: float
) -> dict[str, Any]:
    """Return an event with what all events have.

    Args:
        told: the event's own.
        name: which run it is.
        attempt: the attempt at hand.
        wall_s: the moment, CLOCK_REALTIME, seconds.
    """
    named = {key: _text(value) for key, value in name._asdict().items()}
    head = {"schema": SCHEMA, "event": told["event"], **named}
    return {**head, "at": stamp(wall_s, 0.0), "attempt": attempt, **told}


def _wishes(state: State) -> bool:
    return state.stop is not None or (
        state.parking is not None and state.parking.kind == "user"
    )


def _failed(state: State) -> bool:
    return bool(state.failed or state.hang or state.cannot)


def _told(verdict: Verdict) -> dict[str, Any]:
    small = capped(verdict)
    return {
        "cause": small.cause,
        "certainty": small.certainty,
        "first_ranks": list(small.first_ranks),
        "summary": _text(small.summary),
        "advice": _text(small.advice.text) if small.advice else None,
        "status": small.status,
    }


def _text(told: str) -> str:
    return printable(" ".join(told[: 2 * _TEXT_MAX_CHARS].split()))[:_TEXT_MAX_CHARS]
