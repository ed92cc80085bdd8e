"""Patience: how long a rank may go on without a sign of progress. Pure.

What was learned from steps is worth as much as it took to learn: a loop that has run
for a second, skipping what it has seen already, says nothing of a step that takes a
minute. So a learned limit counts only once as much time was spent on steps as the
limit is at least; until then the limit of the start counts. It counts only for a rank
that does nothing: one that is at work, or whose peers are, has the limit of the start
as well, which is long enough for the longest compilation. Whatever the user or the
script has said is taken as it is.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from dsup.core.limits import Limits
from dsup.core.pulse import Pulse, suspect_after_s

TRAIN_STEPS: Final = 50.0
"""The limit of a training step is so many learned step times: an evaluation without a
phase of its own is seldom longer."""

LONGEST_TIMES: Final = 5.0

TRAIN_FLOOR_S: Final = 60.0
"""What a file system or a switch may take to come back; less would act on a flap."""

TRAIN_CEILING_S: Final = 1800.0
"""The longest time-out that PyTorch itself has by default."""

GIVEN_STRAIN_MAX: Final = 3.0
"""By so much overload stretches a limit that somebody has given, at most."""

_USUAL: Final = Limits()


def patience_s(pulse: Pulse, limits: Limits, strain: float = 1.0) -> float | None:
    """Return after how long without a sign of progress a rank is suspected.

    Args:
        pulse: what is remembered of it.
        limits: how long phases may last.
        strain: by what the node's overload stretches everything.
    """
    limit_s = limit_of(pulse, limits)
    last_s = None if limit_s is None else limit_s * stretch(pulse, limits, strain)
    learned_s = suspect_after_s(pulse) if pulse.look.phase == "train" else None
    if learned_s is None:
        return last_s
    return learned_s * strain if last_s is None else min(learned_s * strain, last_s)


def limit_of(pulse: Pulse, limits: Limits, *, left: bool = False) -> float | None:
    """Return how long a rank's phase may last; None for as long as it likes.

    Args:
        pulse: what is remembered of it.
        limits: how long phases may last.
        left: another rank has ended with exit 0, so this one may be about to.
    """
    look = pulse.look
    if look.limit_s is not None:
        return look.limit_s
    match look.phase:
        case "train":
            return _train_limit_s(pulse, limits, left=left)
        case "init":
            return limits.unseen_s if pulse.returned else limits.init_s
        case "eval" | "checkpoint" | "finish":
            return of_phase_s(look.phase, limits)
        case _:
            return limits.unseen_s


def of_phase_s(phase: str, limits: Limits) -> float:
    """Return how long a phase in which a rank is waited for may last."""
    match phase:
        case "eval":
            return limits.eval_s
        case "checkpoint":
            return limits.checkpoint_s
        case "finish":
            return limits.finish_s
        case _:
            return limits.init_s


def _train_limit_s(pulse: Pulse, limits: Limits, *, left: bool) -> float:
    """Return how long a rank may take for a step, seconds.

    Learned: ``TRAIN_STEPS`` usual step times or five times the longest pause that has
    passed, within ``TRAIN_FLOOR_S`` and ``TRAIN_CEILING_S``.
    """
    if limits.train_s is not None:
        return limits.train_s
    usual_s = pulse.usual_s
    if usual_s is None or pulse.trained_s < TRAIN_FLOOR_S:
        return limits.init_s
    learned_s = max(TRAIN_STEPS * usual_s, LONGEST_TIMES * pulse.longest_s)
    learned_s = min(max(learned_s, TRAIN_FLOOR_S), TRAIN_CEILING_S)
    return max(learned_s, limits.finish_s) if left else learned_s


def is_learned(pulse: Pulse, limits: Limits) -> bool:
    """Return whether nobody has said how long this rank may take."""
    look = pulse.look
    return look.phase == "train" and look.limit_s is None and limits.train_s is None


def outlasts_s(
    pulse: Pulse,
    limits: Limits,
    active_s: float | None = None,
    strain: float = 1.0,
    *,
    left: bool = False,
) -> float | None:
    """Return when a rank has outlasted its limit, agent clock; None for never.

    Args:
        pulse: what is remembered of it.
        limits: how long phases may last.
        active_s: when it, or a rank it may wait for, was last at work; None if unknown.
        strain: by what the node's overload stretches everything.
        left: another rank has ended with exit 0.
    """
    limit_s = limit_of(pulse, limits, left=left)
    if limit_s is None:
        return None
    limit_s *= stretch(pulse, limits, strain)
    if active_s is None or not is_learned(pulse, limits):
        return pulse.since_s + limit_s
    most_s = max(limit_s, limits.init_s * strain)
    return min(max(pulse.since_s, active_s) + limit_s, pulse.since_s + most_s)


def stretch(pulse: Pulse, limits: Limits, strain: float) -> float:
    """Return by what the node's overload stretches the limit of a rank."""
    phase = pulse.look.phase
    field = f"{phase}_s" if phase and not pulse.returned else "unseen_s"
    given = getattr(limits, field) != getattr(_USUAL, field)
    given = given or pulse.look.limit_s is not None
    return min(strain, GIVEN_STRAIN_MAX) if given else strain


def is_away(pulse: Pulse, limits: Limits, now_s: float) -> bool:
    """Return whether a rank is in a phase others may wait for, within its limit."""
    if not pulse.look.away:
        return False
    limit_s = limit_of(pulse, limits)
    return limit_s is None or now_s - pulse.since_s <= limit_s


def excuse_s(pulses: Iterable[Pulse], limits: Limits, now_s: float) -> float | None:
    """Return for how long ranks that train may wait for others; None for not at all.

    Each phase counts once since the last step of the rank that is in it, and with its
    limit. A rank that enters phase after phase and makes no step, as a dedicated
    evaluator, excuses nobody.
    """
    return max(
        (
            sum(_may_last_s(away.phase, away.limit_s, limits) for away in pulse.away)
            for pulse in pulses
            if is_away(pulse, limits, now_s) and not pulse.returned
        ),
        default=None,
    )


def _may_last_s(phase: str, own_s: float | None, limits: Limits) -> float:
    return of_phase_s(phase, limits) if own_s is None else own_s


def excused(pulse: Pulse, for_s: float | None, now_s: float) -> Pulse:
    """Return a pulse whose limit starts again, if it is about steps.

    Args:
        pulse: what is remembered of a rank.
        for_s: how long it may wait for others since its last step; None for not at all.
        now_s: agent clock, seconds.
    """
    if for_s is None or pulse.look.phase != "train" or now_s - pulse.moved_s > for_s:
        return pulse
    return pulse._replace(since_s=now_s, excused=True)
