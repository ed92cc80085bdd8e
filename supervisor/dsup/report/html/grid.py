"""Rows of a chart, and the pieces of a rank's bar. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from dsup.report.html.chart import (
    LABEL_LEFT,
    Band,
    Bar,
    BarKind,
    Mark,
    MarkKind,
    Text,
    TextKind,
)
from dsup.report.html.lives import Attempt, Kind, RankLife
from dsup.report.html.rows import Row, rows
from dsup.report.sentences import spans

_TALL: Final = 21.0
_LOW: Final = 13.0
_SMALL: Final = 17.0
_BAR: Final = 11 / 21

MARKS: Final[dict[Kind, MarkKind]] = {
    "first": "died",
    "victim": "victim",
    "ended": "stop",
    "own": "own",
}
TONES: Final[dict[Kind, TextKind]] = {
    "first": "bold",
    "ended": "muted",
    "told": "muted",
    "done": "muted",
}


class Grid(NamedTuple):
    """Where rows lie.

    Attributes:
        top: of the first row.
        tall: height of a row.
    """

    top: float
    tall: float
    rows: tuple[Row, ...]

    @property
    def bottom(self) -> float:
        """Of the last row."""
        return self.top + self.tall * len(self.rows)

    @property
    def thick(self) -> float:
        """Height of a bar."""
        return round(self.tall * _BAR)

    def middle(self, number: int) -> float:
        """Return the middle of a row."""
        return self.top + self.tall * (number + 0.5)

    def bar(self, kind: BarKind, number: int, left: float, right: float) -> Bar:
        """Return a bar in a row, wide enough to be seen."""
        height = self.thick
        right = max(right, left + 0.8)
        return Bar(kind, left, right, self.middle(number) - height / 2, height)

    def mark(self, kind: MarkKind, x: float, number: int) -> Mark:
        """Return a mark in a row, smaller where rows are low."""
        scale = 1.0 if self.tall > _SMALL else 0.8
        return Mark(kind, x, self.middle(number), scale)

    def base(self, number: int) -> float:
        """Return the base line of a row's text."""
        return self.middle(number) + 4.4

    def bands(self) -> tuple[Band, ...]:
        """Return the backgrounds of rows that stand out."""
        return tuple(
            Band(self.top + self.tall * number, self.tall)
            for number, row in enumerate(self.rows)
            if row.band
        )

    def labels(self) -> list[Text]:
        """Return what stands before each row."""
        return [
            Text(
                LABEL_LEFT,
                self.base(number),
                row.label,
                "first" if row.band else "plain",
                tip=spans(row.ranks) if row.fold else "",
            )
            for number, row in enumerate(self.rows)
        ]


def grid_of(attempt: Attempt, top: float, room: float) -> Grid:
    """Return the rows of an attempt; they are lower where they are many.

    Args:
        attempt: the one that the page is about.
        top: where the first row begins.
        room: how high all rows together may be before they become lower.
    """
    found = rows(attempt)
    tall = min(_TALL, max(_LOW, room // max(1, len(found))))
    return Grid(top, tall, found)


def life_bars(
    attempt: Attempt, lives: Sequence[RankLife], died_s: float | None
) -> list[tuple[BarKind, float, float]]:
    """Return the pieces of one row's bar, from left to right.

    Args:
        attempt: theirs.
        lives: ranks of the row.
        died_s: when they began to die, where they are first ranks; None for others.
    """
    first = died_s is not None
    start_s = min(life.start_s for life in lives)
    ends = [life.end_s if life.end_s is not None else attempt.end_s for life in lives]
    end_s, gone_s = min(ends), max(ends)
    ready = [life.ready_s for life in lives if life.ready_s is not None]
    ready_s = _clamp(ready[0] if ready else start_s, start_s, end_s)
    asked_s = _asked(attempt, lives)
    until_s = died_s if died_s is not None else end_s
    if asked_s is not None and not first:
        until_s = asked_s
    until_s = _clamp(until_s, ready_s, end_s)
    found: list[tuple[BarKind, float, float]] = [
        ("fstart" if first else "start", start_s, ready_s),
        ("first" if first else "run", ready_s, until_s),
        ("dying" if first else "ending", until_s, gone_s),
    ]
    return [(kind, a, b) for kind, a, b in found if b > a]


def _asked(attempt: Attempt, lives: Sequence[RankLife]) -> float | None:
    """Return when dsup first asked ranks of a row to end; None for never."""
    ranks = {life.rank for life in lives}
    told = (s.at_s for s in attempt.signals if not ranks.isdisjoint(s.ranks))
    return next(told, None)


def _clamp(value: float, low: float, high: float) -> float:
    return min(max(value, low), max(low, high))
