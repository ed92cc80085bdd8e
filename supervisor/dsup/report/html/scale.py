"""Time on an axis: where a moment is drawn, and which ticks it is measured by. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final, NamedTuple

from dsup.report.html.words import MINUS, NBSP, clock, date

TICKS_MIN: Final = 6
TICKS_MAX: Final = 10

_MINUTE_S: Final = 60
_HOUR_S: Final = 3600
_DAY_S: Final = 86400
_STEPS: Final = (1, 2, 5, 10, 15, 30)
_HOURS: Final = (1, 2, 3, 6, 12)
"""Parts of a day, so that each day has the same ticks."""

_DAYS: Final = tuple(step * 10**power for power in range(8) for step in (1, 2, 5))
_FINE: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)


class Stretch(NamedTuple):
    """A piece of time, and where it lies."""

    from_s: float
    to_s: float
    left: float
    right: float

    def x(self, at_s: float) -> float:
        """Return where a moment of it lies."""
        share = (at_s - self.from_s) / max(self.to_s - self.from_s, 1e-9)
        return self.left + share * (self.right - self.left)


class Scale(NamedTuple):
    """An axis: pieces of time from left to right, time between them left out."""

    stretches: tuple[Stretch, ...]

    @property
    def left(self) -> float:
        """Where it begins."""
        return self.stretches[0].left

    @property
    def right(self) -> float:
        """Where it ends."""
        return self.stretches[-1].right

    def x(self, at_s: float) -> float:
        """Return where a moment is drawn, at most as far out as the axis goes."""
        for piece in self.stretches:
            if at_s <= piece.to_s:
                return piece.x(max(at_s, piece.from_s))
        return self.right


class Ticks(NamedTuple):
    """Marks of an axis, all of them inside ``from_s`` and ``to_s``."""

    from_s: float
    to_s: float
    step_s: float
    at_s: tuple[float, ...]


def ticks(from_s: float, to_s: float) -> Ticks:
    """Return six to ten ticks, the time stretched by as little as that takes."""
    span_s = max(to_s - from_s, 0.004)
    wanted = [
        found
        for step_s in _steps()
        if span_s / TICKS_MAX / 2 <= step_s <= span_s
        for found in [_ticks(from_s, from_s + span_s, step_s)]
        if found is not None
    ]
    if not wanted:  # no time that a clock shows
        return _even(from_s, from_s + span_s)
    return min(wanted, key=lambda found: (found.to_s - found.from_s, found.step_s))


def label(at_s: float, step_s: float) -> str:
    """Return the time of day below a tick; the day where days pass."""
    text = clock(at_s, _digits(step_s))
    if step_s >= _DAY_S or (step_s >= _HOUR_S and text == "00:00:00"):
        return date(at_s)[5:]
    return text if step_s < _MINUTE_S else text[:5]


def distance(seconds: float, step_s: float) -> str:
    """Return the distance from the death below a tick."""
    sign = MINUS if seconds < 0 else "+"
    if step_s >= _HOUR_S:
        return f"{sign}{abs(seconds) / _HOUR_S:g}{NBSP}h"
    if step_s >= _MINUTE_S:
        return f"{sign}{abs(seconds) / _MINUTE_S:g}{NBSP}min"
    return f"{sign}{abs(seconds):.{_digits(step_s)}f}{NBSP}s"


def _digits(step_s: float) -> int:
    """Return how many digits tell two ticks apart."""
    return max(0, -math.floor(math.log10(step_s) + 1e-9))


def _steps() -> Iterator[float]:
    yield from _FINE
    yield from _STEPS
    yield from (step * _MINUTE_S for step in _STEPS)
    yield from (step * _HOUR_S for step in _HOURS)
    yield from (step * _DAY_S for step in _DAYS)


def _even(from_s: float, to_s: float) -> Ticks:
    step_s = (to_s - from_s) / (TICKS_MIN - 1)
    at_s = tuple(from_s + number * step_s for number in range(TICKS_MIN))
    return Ticks(from_s, max(to_s, at_s[-1]), step_s, at_s)


def _ticks(from_s: float, to_s: float, step_s: float) -> Ticks | None:
    """Return ticks of one step; None where there would be too many or too few."""
    first, last = math.ceil(from_s / step_s - 1e-6), math.floor(to_s / step_s + 1e-6)
    while last - first + 1 < TICKS_MIN and last - first + 1 < TICKS_MAX:
        before, after = from_s - (first - 1) * step_s, (last + 1) * step_s - to_s
        if before < after / 2:
            first -= 1
        else:
            last += 1
    if last - first + 1 > TICKS_MAX:
        return None
    at_s = tuple(number * step_s for number in range(first, last + 1))
    return Ticks(min(from_s, at_s[0]), max(to_s, at_s[-1]), step_s, at_s)
