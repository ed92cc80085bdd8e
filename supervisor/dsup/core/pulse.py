"""The pulse of a rank: its step times, its last sign of progress, and its limits. Pure.

A step time is learned from this attempt's own steps: their median, so that an
evaluation in every hundredth step does not move it. A pause that has passed by itself
is learned, too: what a loop has survived once is no reason for suspicion again. A wait
for a rank that evaluates or saves is neither: such a phase has a limit of its own, and
says nothing of the steps of those that wait for it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from dsup.core.limits import Limits

FLOOR_S: Final = 2.0
"""Nobody is suspected for less: a look comes once a second."""

SUSPECT_STEPS: Final = 3.0
PASSED_SHARE: Final = 1.5
"""Suspected again only after so many times the longest pause that has passed."""

LEARN_STEPS: Final = 3
LEARNED_MAX: Final = 63
LONGEST_TIMES: Final = 5.0

WAITED_FOR: Final = frozenset({"eval", "checkpoint", "finish"})
"""Phases of one rank, or of some, that all others may have to wait for."""

TRAIN_STEPS: Final = 50.0
"""The limit of a training step is so many learned step times: an evaluation without a
phase of its own is seldom longer."""

TRAIN_FLOOR_S: Final = 60.0
"""What a file system or a switch may take to come back; less would act on a flap."""

TRAIN_CEILING_S: Final = 1800.0
"""The longest time-out that PyTorch itself has by default."""


class Look(NamedTuple):
    """One rank at one moment.

    Attributes:
        state: of /proc/PID/stat; empty if it has gone.
        cpu_s: processor time of the rank and its helpers so far, seconds.
        step: last step; None for none, or without the runtime.
        heartbeat_s: agent clock, seconds; None for never.
        progress_s: end of the last step, agent clock, seconds; None for none.
        phase: a word of ``contract.PHASES``; empty without the runtime.
        limit_s: how long the rank itself says that its phase may last; None if it does
            not.
        wrote: bytes that it has written so far, of a rank that tells nothing else; None
            if unknown.
    """

    rank: int
    state: str = ""
    cpu_s: float = 0.0
    step: int | None = None
    heartbeat_s: float | None = None
    progress_s: float | None = None
    phase: str = ""
    limit_s: float | None = None
    wrote: int | None = None


class Pulse(NamedTuple):
    """What is remembered of a rank.

    Attributes:
        since_s: its last sign of progress: a step, a phase, the start of the watch; of
            a rank that tells neither, output.
        steps_s: the last step times, seconds.
        longest_s: the longest pause that has passed.
        state_s: since when it is in this state without a break.
        cpu_s: processor time when that state began.
        excused: it may have waited for a rank in a phase of its own since its last
            step.
    """

    look: Look
    since_s: float
    steps_s: tuple[float, ...] = ()
    longest_s: float = 0.0
    state_s: float = 0.0
    cpu_s: float = 0.0
    excused: bool = False

    @property
    def usual_s(self) -> float | None:
        """The learned step time; None while too few steps were seen."""
        learned = len(self.steps_s)
        # Not statistics.median: its import alone costs 15 ms and a MiB.
        return sorted(self.steps_s)[learned // 2] if learned >= LEARN_STEPS else None


def waits_for(pulses: Iterable[Pulse], limits: Limits, now_s: float) -> bool:
    """Return whether a rank is in a phase that others may have to wait for.

    One that has outlasted its limit is no excuse any more.
    """
    return any(
        pulse.look.phase in WAITED_FOR
        and (limit_s := limit_of(pulse, limits)) is not None
        and now_s - pulse.since_s <= limit_s
        for pulse in pulses
    )


def excused(pulse: Pulse, now_s: float) -> Pulse:
    """Return a pulse whose limit starts again, if it is about steps."""
    if pulse.look.phase != "train":
        return pulse
    return pulse._replace(since_s=now_s, excused=True)


def train_limit_s(pulse: Pulse, limits: Limits) -> float:
    """Return how long a rank may take for a step, seconds.

    Learned: ``TRAIN_STEPS`` usual step times or five times the longest pause that has
    passed, within ``TRAIN_FLOOR_S`` and ``TRAIN_CEILING_S``.
    """
    if limits.train_s is not None:
        return limits.train_s
    usual_s = pulse.usual_s
    if usual_s is None:
        return limits.init_s
    learned_s = max(TRAIN_STEPS * usual_s, LONGEST_TIMES * pulse.longest_s)
    return min(max(learned_s, TRAIN_FLOOR_S), TRAIN_CEILING_S)


def looked_at(before: Pulse | None, look: Look, now_s: float) -> Pulse:
    """Return what is remembered of a rank after one more look.

    Args:
        before: what was remembered; None for a rank that is new.
        look: how it is now.
        now_s: agent clock, seconds.
    """
    if before is None:
        return Pulse(look, now_s, (), 0.0, now_s, look.cpu_s)
    pulse = _stepped(before, look, now_s)
    if before.look.state != look.state:
        pulse = pulse._replace(state_s=now_s, cpu_s=look.cpu_s)
    return pulse._replace(look=look)


def _stepped(before: Pulse, look: Look, now_s: float) -> Pulse:
    """Return what a step or a new phase changes; a step backwards is a new start."""
    old = before.look
    new_phase = look.phase != old.phase and look.step == old.step
    if new_phase or (not look.phase and look.wrote != old.wrote):
        return before._replace(since_s=now_s)
    if look.step is None or look.step == old.step:
        return before
    at_s = now_s if look.progress_s is None else min(look.progress_s, now_s)
    after = before._replace(since_s=at_s, excused=False)
    if old.step is None or look.step < old.step or old.progress_s is None:
        return after
    if before.excused or not old.phase == look.phase == "train":
        return after
    made = look.step - old.step
    step_s = max(at_s - max(old.progress_s, before.since_s), 0.0) / made
    return after._replace(
        steps_s=(*before.steps_s, *[step_s] * min(made, LEARN_STEPS))[-LEARNED_MAX:],
        longest_s=max(before.longest_s, step_s, _pause(before, at_s)),
    )


def _pause(before: Pulse, at_s: float) -> float:
    """Return how long a rank had paused, if that was enough to be suspected."""
    waited_s = at_s - before.since_s
    if waited_s <= FLOOR_S:
        return 0.0
    limit_s = _suspect_after_s(before)
    return waited_s if limit_s is not None and waited_s > limit_s else 0.0


def _suspect_after_s(pulse: Pulse) -> float | None:
    usual_s = pulse.usual_s
    if usual_s is None:
        return None
    return max(FLOOR_S, SUSPECT_STEPS * usual_s, PASSED_SHARE * pulse.longest_s)


def patience_s(pulse: Pulse, limits: Limits) -> float | None:
    """Return after how long without a sign of progress a rank is suspected."""
    look = pulse.look
    if look.phase == "train":
        learned_s = _suspect_after_s(pulse)
        return limit_of(pulse, limits) if learned_s is None else learned_s
    return limit_of(pulse, limits)


def limit_of(pulse: Pulse, limits: Limits) -> float | None:
    """Return how long a rank's phase may last; None for as long as it likes."""
    look = pulse.look
    if look.limit_s is not None:
        return look.limit_s
    match look.phase:
        case "train":
            return train_limit_s(pulse, limits)
        case "init":
            return limits.init_s
        case "eval":
            return limits.eval_s
        case "checkpoint":
            return limits.checkpoint_s
        case "finish":
            return limits.finish_s
        case _:
            return limits.unseen_s
