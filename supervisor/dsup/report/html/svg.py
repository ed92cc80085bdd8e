"""A chart as SVG: one path for each class, coordinates with one decimal. Pure.

Only path data is written here; the elements around it are the template's, which
escapes every text.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from dsup.report.html.chart import WIDTH, Bar, Chart, Line, Mark, MarkKind, Text

_DISC = 7.0
_CROSS = 2.5
_DIAMOND = 5.2
_STOP = (1.5, 7.0)
_OWN = 3.4
_STILL = (2.4, 4.2)


class Path(NamedTuple):
    """All shapes of one class."""

    kind: str
    data: str


def under(chart: Chart) -> list[Path]:
    """Return what lies below the bars."""
    found = [Path("band", "".join(_band(b.top, b.height) for b in chart.bands))]
    found += _lines(chart, ("grid",))
    for kind in ("others", "own"):
        areas = [a for a in chart.areas if a.kind == kind]
        data = "".join(f"{_polyline((*a.top, *reversed(a.bottom)))}z" for a in areas)
        found.append(Path(kind, data))
        if kind == "own":
            found.append(Path("edge", "".join(_polyline(a.top) for a in areas)))
    return [path for path in found if path.data]


def over(chart: Chart) -> list[Path]:
    """Return bars, marks and lines, in the order in which they are drawn."""
    kinds = ("start", "run", "ending", "fstart", "dying", "first")
    found = [
        Path(kind, bars(b for b in chart.bars if b.kind == kind)) for kind in kinds
    ]
    found += _lines(chart, ("gap", "cgroup", "limit", "bracket", "event"))
    for mark in ("still", "stop", "own", "victim", "died"):
        here = [m for m in chart.marks if m.kind == mark]
        found.append(Path(f"m-{mark}", "".join(map(_mark, here))))
        if mark == "died":
            found.append(Path("cross", "".join(_cross(m, _CROSS) for m in here)))
    return [path for path in found if path.data]


def bars(some: Iterable[Bar]) -> str:
    """Return bars as one path; those that touch from above become one."""
    merged: list[Bar] = []
    for bar in some:
        last = merged[-1] if merged else None
        below = last is not None and abs(last.top + last.height - bar.top) < 1e-6  # noqa: PLR2004
        if last is not None and below and _edges(last) == _edges(bar):
            merged[-1] = last._replace(height=last.height + bar.height)
        else:
            merged.append(bar)
    return "".join(
        f"M{_n(b.left)} {_n(b.top)}h{_n(b.right - b.left)}v{_n(b.height)}H{_n(b.left)}z"
        for b in merged
    )


def swatch(kind: MarkKind) -> list[Path]:
    """Return a mark for the key, in a box of 22 by 16."""
    mark = Mark(kind, 11, 8)
    found = [Path(f"m-{kind}", _mark(mark))]
    return [*found, Path("cross", _cross(mark, _CROSS))] if kind == "died" else found


def style(text: Text) -> str:
    """Return the class of a text."""
    return f"t-{text.kind} a-{text.anchor}"


def number(value: float) -> str:
    """Return a coordinate: one decimal at most."""
    return _n(value)


def _edges(bar: Bar) -> tuple[str, str]:
    return _n(bar.left), _n(bar.right)


def _lines(chart: Chart, kinds: Iterable[str]) -> list[Path]:
    return [
        Path(kind, "".join(_line(line) for line in chart.lines if line.kind == kind))
        for kind in kinds
    ]


def _line(line: Line) -> str:
    (x, y), *rest = line.points
    if len(rest) == 1:
        (to_x, to_y) = rest[0]
        if to_x == x:
            return f"M{_n(x)} {_n(y)}V{_n(to_y)}"
        if to_y == y:
            return f"M{_n(x)} {_n(y)}H{_n(to_x)}"
    return _polyline(line.points)


def _polyline(points: Iterable[tuple[float, float]]) -> str:
    whole = " ".join(f"{_n(x)} {_n(y)}" for x, y in points)
    return f"M{whole}"


def _band(top: float, height: float) -> str:
    side = _n(height - 8)
    return (
        f"M4 {_n(top)}H{WIDTH - 4}a4 4 0 0 1 4 4v{side}a4 4 0 0 1-4 4H4"
        f"a4 4 0 0 1-4-4v-{side}a4 4 0 0 1 4-4z"
    )


def _mark(mark: Mark) -> str:
    x, y = mark.x, mark.y
    match mark.kind:
        case "died":
            r = _DISC * mark.scale
            arc = f"a{_n(r)} {_n(r)} 0 1 0"
            return f"M{_n(x - r)} {_n(y)}{arc} {_n(2 * r)} 0{arc}-{_n(2 * r)} 0z"
        case "victim":
            s = _DIAMOND * mark.scale
            a = _n(s)
            return f"M{_n(x - s)} {_n(y)}l{a}-{a} {a} {a}-{a} {a}z"
        case "stop":
            w, h = _STOP[0], _STOP[1] * mark.scale
            return f"M{_n(x - w)} {_n(y - h)}h{_n(2 * w)}v{_n(2 * h)}h-{_n(2 * w)}z"
        case "still":
            w, h = _STILL[0] * mark.scale, _STILL[1] * mark.scale
            bar = f"v{_n(2 * h)}h-{_n(w)}z"
            return "".join(
                f"M{_n(x + at)} {_n(y - h)}h{_n(w)}{bar}" for at in (-1.5 * w, 0.5 * w)
            )
        case _:
            return _cross(mark, _OWN)


def _cross(mark: Mark, arm: float) -> str:
    arm *= mark.scale
    x, y, wide = mark.x, mark.y, _n(2 * arm)
    return (
        f"M{_n(x - arm)} {_n(y - arm)}l{wide} {wide}"
        f"M{_n(x - arm)} {_n(y + arm)}l{wide}-{wide}"
    )


def _n(value: float) -> str:
    text = f"{value:.1f}"
    return text.removesuffix(".0") if text != "-0.0" else "0"
