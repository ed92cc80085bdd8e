"""How much a node's overload stretches everything that the ranks do. Pure.

Where tasks wait for a processor, for memory, or for the end of a cgroup's quota, a step
takes longer, and so does everything that a limit is about. What counts is how much more
they wait than when the steps were learned from: a node that is always full has taught
its step times full.
"""

from __future__ import annotations

from typing import Final, NamedTuple

MOST: Final = 10.0
RECENT: Final = 5
"""The worst of so many looks counts: a burst slows a step that ends after it."""

LEARNED: Final = 63
"""As many looks as steps are learned from."""

_US: Final = 1e6


class Pressure(NamedTuple):
    """Counters that only rise.

    Attributes:
        at_s: when they were read, agent clock, seconds.
        cpu_us: how long some task has waited for a processor, microseconds.
        memory_us: the same for memory.
        periods: of a quota of processor time, if there is one.
        throttled: in how many of them it was used up.
    """

    at_s: float
    cpu_us: int = 0
    memory_us: int = 0
    periods: int = 0
    throttled: int = 0


class Strain(NamedTuple):
    """What is remembered.

    Attributes:
        last: the counters at the last look.
        recent: by what the last looks would stretch everything; the newest last.
        learned: the same of looks at which ranks made progress.
    """

    last: Pressure | None = None
    recent: tuple[float, ...] = ()
    learned: tuple[float, ...] = ()

    @property
    def factor(self) -> float:
        """By what limits are to be stretched now: 1 when all is as calm as before."""
        worst = max(self.recent, default=1.0)
        usual = sorted(self.learned)[len(self.learned) // 2] if self.learned else 1.0
        return min(max(worst / usual, 1.0), MOST)


def looked_at(before: Strain, now: Pressure, *, progressed: bool) -> Strain:
    """Return what is remembered after one more look at the counters.

    Args:
        before: what was remembered.
        now: the counters.
        progressed: a rank has made a step since the last look.
    """
    if before.last is None:
        return before._replace(last=now)
    if now.at_s <= before.last.at_s:
        return before
    stretch = 1.0 / (1.0 - min(_share(before.last, now), 1.0 - 1.0 / MOST))
    learned = (*before.learned, stretch)[-LEARNED:] if progressed else before.learned
    return Strain(now, (*before.recent, stretch)[-RECENT:], learned)


def _share(before: Pressure, now: Pressure) -> float:
    """Return in which share of the time between two looks somebody had to wait."""
    passed_us = (now.at_s - before.at_s) * _US
    periods = now.periods - before.periods
    shares = (
        (now.cpu_us - before.cpu_us) / passed_us,
        (now.memory_us - before.memory_us) / passed_us,
        (now.throttled - before.throttled) / periods if periods > 0 else 0.0,
    )
    return max(0.0, *shares)
