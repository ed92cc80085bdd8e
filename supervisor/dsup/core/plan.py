"""What happens after a failed attempt: restart at a time, or give up with a code.

``PLANS`` is the whole policy: rows are tried from top to bottom, and the first whose
condition holds decides. ``dsup launch --explain-policy`` prints them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from dsup.core.exits import CAUSES, REPEATED, exit_code

CHOSEN_RESTARTS: Final = 3
"""How often dsup restarts an infrastructure failure if --max-restarts is not given."""


class Policy(NamedTuple):
    """What the user asked for.

    Attributes:
        max_restarts: --max-restarts; None lets dsup choose.
        backoff_s: pauses before restarts, seconds; the last one repeats.
        healthy_after_s: an attempt that lived this long and progressed is forgiven
            the failures before it, seconds.
        restart_on_user: --restart-on user.
        checkpoints_known: a checkpoint location was given.
    """

    max_restarts: int | None
    backoff_s: tuple[float, ...]
    healthy_after_s: float
    restart_on_user: bool
    checkpoints_known: bool


class Failure(NamedTuple):
    """A failed attempt, as far as policy cares.

    Attributes:
        cause: a key of ``exits.CAUSES``.
        rank: the first rank; None when there is none.
        status: its exit code, or minus its signal number.
        reason: what could not be done, where no rank failed; else empty.
        at_s: the first death, agent clock, seconds.
        failed_attempts: failures in a row, this one included.
        progressed: the attempt finished a new step or left a new checkpoint.
        signature: (cause, rank, status, what the judge says identifies it).
        repeated: the failure before had the same signature.
        resumable: a checkpoint location is known, or the runtime reports steps.
        hung: dsup ended it for a hang.
        last: nothing is to follow it, as was asked for.
    """

    cause: str
    rank: int | None
    status: int
    reason: str
    at_s: float
    failed_attempts: int
    progressed: bool
    signature: tuple[str, int | None, int, str]
    repeated: bool
    resumable: bool
    hung: bool = False
    last: bool = False


class Plan(NamedTuple):
    """The answer.

    Attributes:
        restart_at_s: when the next attempt begins, agent clock; None to give up.
        code: exit code when given up.
        reason: the row of ``PLANS`` that decided, in words.
    """

    restart_at_s: float | None
    code: int
    reason: str


class Row(NamedTuple):
    """One rule: when it applies, whether to restart, and why."""

    applies: Callable[[Failure, Policy], bool]
    restart: bool
    reason: str


def _is_user(failure: Failure) -> bool:
    return CAUSES[failure.cause].family == "user"


def _stuck(failure: Failure) -> bool:
    return failure.repeated and not failure.progressed


PLANS: Final = (
    Row(
        lambda f, _: f.cause == "unkillable",
        restart=False,
        reason="a process can not be killed",
    ),
    Row(
        lambda f, _: f.cause == "spawn_error",
        restart=False,
        reason="the program can not be started",
    ),
    Row(
        lambda f, _: f.last,
        restart=False,
        reason="a hang ends the run (--on-hang stop)",
    ),
    Row(
        lambda f, p: p.max_restarts is not None and f.failed_attempts <= p.max_restarts,
        restart=True,
        reason="--max-restarts is not used up",
    ),
    Row(
        lambda _, p: p.max_restarts == 0,
        restart=False,
        reason="--max-restarts 0",
    ),
    Row(
        lambda _, p: p.max_restarts is not None,
        restart=False,
        reason="--max-restarts is used up",
    ),
    Row(
        lambda f, p: _is_user(f) and not p.restart_on_user and not f.progressed,
        restart=False,
        reason="the script itself failed and reported no progress since the start "
        "(--restart-on user insists)",
    ),
    Row(
        lambda f, p: _is_user(f) and not p.restart_on_user and f.repeated,
        restart=False,
        reason="the script itself failed the same way twice "
        "(--restart-on user insists)",
    ),
    Row(
        lambda f, _: not f.resumable,
        restart=False,
        reason="no checkpoint location is known and no rank reported a step: dsup does "
        "not start over by itself (--checkpoint-dir and --checkpoint-glob name one, "
        "--max-restarts N insists)",
    ),
    Row(
        lambda f, _: f.hung and _stuck(f),
        restart=False,
        reason="it hangs at the same place again, and no new step",
    ),
    Row(
        lambda f, _: f.failed_attempts <= CHOSEN_RESTARTS,
        restart=True,
        reason=f"up to {CHOSEN_RESTARTS} restarts in a row",
    ),
    Row(
        lambda f, _: _stuck(f),
        restart=False,
        reason="it repeats itself: the same failure, and no new step",
    ),
    Row(
        lambda _f, _p: True,
        restart=False,
        reason=f"{CHOSEN_RESTARTS} restarts in a row did not help",
    ),
)


def restarts_in_force(policy: Policy) -> int:
    """Return the restart budget that TORCHELASTIC_MAX_RESTARTS tells the ranks."""
    if policy.max_restarts is not None:
        return policy.max_restarts
    return CHOSEN_RESTARTS if policy.checkpoints_known else 0


def pause_s(failed_attempts: int, backoff_s: tuple[float, ...]) -> float:
    """Return the pause after that many failures in a row, seconds.

    Args:
        failed_attempts: at least 1.
        backoff_s: not empty; the last pause repeats.
    """
    return backoff_s[min(failed_attempts, len(backoff_s)) - 1]


def plan_for(failure: Failure, policy: Policy) -> Plan:
    """Return what to do after a failure: the first row of ``PLANS`` that applies."""
    row = next(row for row in PLANS if row.applies(failure, policy))
    if row.restart:
        pause = pause_s(failure.failed_attempts, policy.backoff_s)
        return Plan(failure.at_s + pause, 0, row.reason)
    chosen = policy.max_restarts is None
    if chosen and _stuck(failure) and not _is_user(failure):
        return Plan(None, REPEATED, row.reason)
    return Plan(None, exit_code(failure.cause, failure.status), row.reason)
