"""A chart as values: where each bar, mark, line and text lies. Pixels, y downwards."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Literal, NamedTuple, TypeAlias

from dsup.report.html.words import fitted, text_width

WIDTH: Final = 1088
LEFT: Final = 74
RIGHT: Final = 862
GUTTER: Final = 884
GUTTER_WIDTH: Final = WIDTH - GUTTER - 6
LABEL_LEFT: Final = 8

TEXT_PX: Final = 12.5
AXIS_PX: Final = 11.5
TAIL_PX: Final = 12.0
"""Between a label and the quiet words behind it."""


BarKind: TypeAlias = Literal["start", "run", "first", "fstart", "dying", "ending"]
MarkKind: TypeAlias = Literal["died", "victim", "stop", "own", "still"]
LineKind: TypeAlias = Literal["grid", "limit", "event", "bracket", "gap", "cgroup"]
TextKind: TypeAlias = Literal["plain", "bold", "muted", "axis", "first", "fplain", "in"]
Anchor: TypeAlias = Literal["start", "middle", "end"]

_BOLD: Final = ("bold", "first")
_WIDEST: Final = 1.16
"""So much wider than Arial's are the letters of DejaVu Sans."""


class Bar(NamedTuple):
    """A piece of a rank's life."""

    kind: BarKind
    left: float
    right: float
    top: float
    height: float


class Mark(NamedTuple):
    """How a rank's life ended; the middle of the shape.

    Attributes:
        scale: 1 for its usual size.
    """

    kind: MarkKind
    x: float
    y: float
    scale: float = 1.0


class Line(NamedTuple):
    """A line of several points."""

    kind: LineKind
    points: tuple[tuple[float, float], ...]


class Band(NamedTuple):
    """The background of a row that stands out."""

    top: float
    height: float


class Area(NamedTuple):
    """An area between two curves.

    Attributes:
        bottom: points of its lower curve, as many as of the upper one.
    """

    kind: Literal["others", "own"]
    top: tuple[tuple[float, float], ...]
    bottom: tuple[tuple[float, float], ...]


class Text(NamedTuple):
    """A label.

    Attributes:
        y: of its base line.
        tip: what a pointer shows; empty for nothing.
        tail: quiet words that follow it on the same line.
    """

    x: float
    y: float
    text: str
    kind: TextKind = "plain"
    anchor: Anchor = "start"
    tip: str = ""
    tail: str = ""

    @property
    def size(self) -> float:
        """Of its font, px."""
        return AXIS_PX if self.kind in {"axis", "in"} else TEXT_PX

    @property
    def width(self) -> float:
        """About how wide it is, px."""
        own = text_width(self.text, self.size, bold=self.kind in _BOLD)
        tail = TAIL_PX + text_width(self.tail, AXIS_PX) if self.tail else 0.0
        return own + tail

    @property
    def box(self) -> tuple[float, float, float, float]:
        """Left, top, right, bottom, in the widest font that a reader may have."""
        shift = {"start": 0.0, "middle": 0.5, "end": 1.0}[self.anchor]
        wide = self.width * _WIDEST
        left = self.x - shift * wide
        return left, self.y - 0.8 * self.size, left + wide, self.y + 0.2 * self.size


class Chart(NamedTuple):
    """A chart.

    Attributes:
        title: what it is, for those who do not see it.
        story: two sentences that tell what it shows.
    """

    title: str
    story: str
    height: float
    bars: tuple[Bar, ...] = ()
    marks: tuple[Mark, ...] = ()
    lines: tuple[Line, ...] = ()
    bands: tuple[Band, ...] = ()
    areas: tuple[Area, ...] = ()
    texts: tuple[Text, ...] = ()

    @property
    def kinds(self) -> frozenset[str]:
        """What a key has to explain."""
        bars, marks = (b.kind for b in self.bars), (m.kind for m in self.marks)
        return frozenset((*bars, *marks, *(line.kind for line in self.lines)))


def vertical(kind: LineKind, x: float, top: float, bottom: float) -> Line:
    """Return a line from top to bottom."""
    return Line(kind, ((x, top), (x, bottom)))


def gutter(y: float, text: str, kind: TextKind = "plain", tip: str = "") -> Text:
    """Return a label beside what it names, cut where it is too long."""
    size = AXIS_PX if kind == "axis" else TEXT_PX
    seen = fitted(text, size, GUTTER_WIDTH, bold=kind in _BOLD)
    return Text(GUTTER, y, seen, kind, tip=tip or (text if seen != text else ""))


def overlap(one: Text, other: Text, gap: float = 2.0) -> bool:
    """Return whether two labels touch."""
    a, b = one.box, other.box
    return a[0] < b[2] + gap and b[0] < a[2] + gap and a[1] < b[3] and b[1] < a[3]


def clear_of(text: Text, others: Iterable[Text], gap: float = 8.0) -> bool:
    """Return whether a label touches none of others."""
    return not any(overlap(text, other, gap) for other in others)


def apart(
    wanted: Sequence[float], height: Sequence[float], bottom: float
) -> list[float]:
    """Return tops of blocks, in the order given, as near as they can be to their wish.

    Args:
        wanted: where each block's top would best be, from top to bottom.
        height: of each block.
        bottom: where the last one has to end.
    """
    tops: list[float] = []
    below = float("-inf")
    for want, tall in zip(wanted, height, strict=True):
        tops.append(max(want, below))
        below = tops[-1] + tall
    floor = bottom
    for at in reversed(range(len(tops))):
        tops[at] = min(tops[at], floor - height[at])
        floor = tops[at]
    return tops
