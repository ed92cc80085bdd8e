"""The pulse of a rank: its step times, its last sign of progress. Pure.

A step time is learned from this attempt's own steps: their median, so that an
evaluation in every hundredth step does not move it. A pause that has passed by itself
is learned, too: what a loop has survived once is no reason for suspicion again. A wait
for a rank that evaluates or saves is neither: such a phase has a limit of its own, and
says nothing of the steps of those that wait for it.
"""

from __future__ import annotations

from typing import Final, NamedTuple

FLOOR_S: Final = 2.0
"""Nobody is suspected for less: a look comes once a second."""

SUSPECT_STEPS: Final = 3.0
PASSED_SHARE: Final = 1.5
"""Suspected again only after so many times the longest pause that has passed."""

LEARN_STEPS: Final = 3
LEARNED_MAX: Final = 63

WAITED_FOR: Final = frozenset({"eval", "checkpoint", "finish"})
"""Phases of one rank, or of some, that all others may have to wait for."""


class Look(NamedTuple):
    """One rank at one moment.

    Attributes:
        state: of its main thread, as in /proc/PID/stat; empty if it has gone.
        cpu_s: processor time of its main thread so far, seconds.
        step: last step; None for none, or without the runtime.
        heartbeat_s: agent clock, seconds; None for never.
        progress_s: end of the last step, agent clock, seconds; None for none. It moves
            with steps that are no numbers as well.
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

    @property
    def stepped(self) -> bool:
        """Whether it has ever made a step."""
        return self.step is not None or self.progress_s is not None

    @property
    def away(self) -> bool:
        """Whether it is in a phase that others may have to wait for.

        That is phase init as well, once it has made a step.
        """
        return self.phase in WAITED_FOR or (self.phase == "init" and self.stepped)


class Away(NamedTuple):
    """A phase that others may have to wait for, and how long the rank says it lasts."""

    phase: str
    limit_s: float | None


class Pulse(NamedTuple):
    """What is remembered of a rank.

    Attributes:
        since_s: its last sign of progress: a step, a phase, the start of the watch; of
            a rank that tells neither, output. While it is excused, now.
        moved_s: the same, excused or not.
        steps_s: the last step times, seconds.
        longest_s: the longest pause that has passed.
        trained_s: how much time it took to make all steps that were learned from.
        state_s: since when it is in this state without a break.
        cpu_s: processor time when that state began.
        excused: it may have waited for a rank in a phase of its own since its last
            step.
        away: the phases in which it may have been waited for since its last step.
        returned: it has ended a phase, without ever having made a step.
    """

    look: Look
    since_s: float
    moved_s: float = 0.0
    steps_s: tuple[float, ...] = ()
    longest_s: float = 0.0
    trained_s: float = 0.0
    state_s: float = 0.0
    cpu_s: float = 0.0
    excused: bool = False
    away: tuple[Away, ...] = ()
    returned: bool = False

    @property
    def usual_s(self) -> float | None:
        """The learned step time; None while too few steps were seen."""
        learned = len(self.steps_s)
        # Not statistics.median: its import alone costs 15 ms and a MiB.
        return sorted(self.steps_s)[learned // 2] if learned >= LEARN_STEPS else None


def looked_at(before: Pulse | None, look: Look, now_s: float) -> Pulse:
    """Return what is remembered of a rank after one more look.

    Args:
        before: what was remembered; None for a rank that is new.
        look: how it is now.
        now_s: agent clock, seconds.
    """
    if before is None:
        fresh = Pulse(look, now_s, now_s, state_s=now_s, cpu_s=look.cpu_s)
        return fresh._replace(away=_away((), look))
    pulse = _moved(before, look, now_s)
    if before.look.state != look.state:
        pulse = pulse._replace(state_s=now_s, cpu_s=look.cpu_s)
    return pulse._replace(look=look)


def _moved(before: Pulse, look: Look, now_s: float) -> Pulse:
    """Return what a step, a new phase or another sign of life changes."""
    old = before.look
    if look.step != old.step or look.progress_s != old.progress_s:
        if look.stepped:
            return _stepped(before, look, now_s)
    elif look.phase != old.phase:
        ended = bool(old.phase) and look.phase == "init" and not look.stepped
        returned = before.returned or ended
        after = before._replace(since_s=now_s, moved_s=now_s, returned=returned)
        return after._replace(away=_away(before.away, look))
    elif _lives(old, look):
        return before._replace(since_s=now_s, moved_s=now_s)
    return before


def _lives(old: Look, look: Look) -> bool:
    """Return whether a rank shows life that never tells a step.

    Its heartbeats are the begin and the end of phases then.
    """
    if look.phase:
        return not look.stepped and look.heartbeat_s != old.heartbeat_s
    return look.wrote != old.wrote


def _away(before: tuple[Away, ...], look: Look) -> tuple[Away, ...]:
    if not look.away or any(one.phase == look.phase for one in before):
        return before
    return (*before, Away(look.phase, look.limit_s))


def _stepped(before: Pulse, look: Look, now_s: float) -> Pulse:
    """Return what a step changes; a step backwards is a new start."""
    old = before.look
    at_s = now_s if look.progress_s is None else min(look.progress_s, now_s)
    after = before._replace(
        since_s=at_s,
        moved_s=at_s,
        excused=False,
        away=_away((), look),
        returned=False,
    )
    made = _made(old, look)
    if old.progress_s is None or made <= 0:
        return after
    if before.excused or not old.phase == look.phase == "train":
        return after
    took_s = max(at_s - max(old.progress_s, before.since_s), 0.0)
    step_s = took_s / made
    return after._replace(
        steps_s=(*before.steps_s, *[step_s] * min(made, LEARN_STEPS))[-LEARNED_MAX:],
        longest_s=max(before.longest_s, step_s, _pause(before, at_s)),
        trained_s=before.trained_s + took_s,
    )


def _made(old: Look, look: Look) -> int:
    """Return how many steps there are to learn from."""
    if look.step is None:
        return 1  # they are no numbers, and can be no more than seen
    return 0 if old.step is None else look.step - old.step


def _pause(before: Pulse, at_s: float) -> float:
    """Return how long a rank had paused, if that was enough to be suspected."""
    waited_s = at_s - before.since_s
    if waited_s <= FLOOR_S:
        return 0.0
    limit_s = suspect_after_s(before)
    return waited_s if limit_s is not None and waited_s > limit_s else 0.0


def suspect_after_s(pulse: Pulse) -> float | None:
    """Return after how long without a step that is worth a look; None if unknown."""
    usual_s = pulse.usual_s
    if usual_s is None:
        return None
    return max(FLOOR_S, SUSPECT_STEPS * usual_s, PASSED_SHARE * pulse.longest_s)


def shifted(pulse: Pulse, by_s: float) -> Pulse:
    """Return the same, that much later: so long nobody has looked."""
    return pulse._replace(
        since_s=pulse.since_s + by_s,
        moved_s=pulse.moved_s + by_s,
        state_s=pulse.state_s + by_s,
        cpu_s=pulse.look.cpu_s,
    )
