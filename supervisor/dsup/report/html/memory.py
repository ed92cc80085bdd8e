"""Memory below the timeline, on its axis: the first rank above the others. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

from dsup.facts.samples import Sample
from dsup.report.html import growth
from dsup.report.html.chart import (
    LABEL_LEFT,
    LEFT,
    RIGHT,
    Area,
    Line,
    Mark,
    Text,
    apart,
    gutter,
)
from dsup.report.html.lives import Attempt, began_s, named
from dsup.report.html.scale import Scale
from dsup.report.html.values import Story
from dsup.report.html.words import size
from dsup.report.sentences import ranks as ranks_words

OF_MEMORY: Final = frozenset(
    {"host_oom", "killed", "dataloader_worker", "sigbus", "unknown", "agent_killed"}
)
"""Causes that memory may explain."""

TALL: Final = 136.0
LOW: Final = 96.0
COLUMN_PX: Final = 3.0
"""At most two points in so many pixels: that is under 600 points for a whole line."""

_GIB_KB: Final = 1 << 20
_FEW: Final = 168.0
_GIVE: Final = 0.6
"""What it gives of its height to rows beyond the height of eight."""

_FULL: Final = 0.9
_FAR: Final = 2.5
_APART: Final = 0.08


class Curve(NamedTuple):
    """The chart's parts.

    Attributes:
        bottom: where its axis lies.
    """

    bottom: float
    areas: tuple[Area, ...]
    lines: tuple[Line, ...]
    marks: tuple[Mark, ...]
    texts: tuple[Text, ...]


class Point(NamedTuple):
    """Memory at one moment, KiB."""

    x: float
    others: float
    total: float
    cgroup: float | None


class _Frame(NamedTuple):
    """Where values lie."""

    top: float
    bottom: float
    top_kb: float

    def y(self, kb: float) -> float:
        """Return where a value lies."""
        share = min(max(kb / self.top_kb, 0.0), 1.0)
        return self.bottom - share * (self.bottom - self.top)


def curve(
    story: Story, attempts: Sequence[Attempt], scale: Scale, rows: tuple[float, float]
) -> Curve | None:
    """Return memory on the axis of the timeline; None where it explains nothing.

    Args:
        story: what the page tells.
        attempts: those that are drawn.
        scale: of their times.
        rows: top and bottom of the rows above; below many of them it is lower.
    """
    main = story.attempt
    if main is None or not _wanted(story, main):
        return None
    first = named(main)
    lines = [points(attempt.samples, first, scale) for attempt in attempts]
    if all(len(one) < 2 for one in lines):  # noqa: PLR2004 (one point is no curve)
        return None
    peak = max((max(p.total, p.cgroup or 0) for one in lines for p in one), default=0)
    limit = limit_kb(main.samples)
    near = limit is not None and limit <= _FAR * peak
    top = rows[1] + 24
    tall = min(TALL, max(LOW, TALL - _GIVE * (rows[1] - rows[0] - _FEW)))
    frame = _Frame(top + 22, top + 22 + tall, max(peak, limit if near and limit else 0))
    if frame.top_kb <= 0:
        return None
    drawn = [_areas(one, frame, split=bool(first)) for one in lines]
    across, values = _values(frame, limit if near else None)
    what = "cgroup" if main.samples[-1].cgroup_kb is not None else "ranks"
    head = Text(LABEL_LEFT, top + 2, f"memory of the {what}", "bold")
    crowns = _crowns(attempts, lines, first, frame, scale)
    held = _cgroup(lines, frame)
    return Curve(
        bottom=frame.bottom,
        areas=tuple(area for one in drawn for area in one),
        lines=(*across, *held),
        marks=crowns,
        texts=(head, *values, *_gutter(main, frame, limit, near=near)),
    )


def points(
    samples: Sequence[Sample], first: frozenset[int], scale: Scale
) -> list[Point]:
    """Return at most the lowest and the highest point of each column of pixels."""
    columns: dict[int, list[Point]] = {}
    for sample in samples:
        own = sum(kb for rank, kb in sample.rss_kb.items() if rank in first)
        total = sum(sample.rss_kb.values())
        x = scale.x(sample.at_s)
        held = float(sample.cgroup_kb) if sample.cgroup_kb is not None else None
        columns.setdefault(int(x // COLUMN_PX), []).append(
            Point(x, total - own, total, held)
        )
    found: list[Point] = []
    for column in columns.values():
        ends = {min(column, key=_total), max(column, key=_total)}
        found.extend(sorted(ends))
    return found


def limit_kb(samples: Sequence[Sample]) -> int | None:
    """Return the cgroup's limit; None for none."""
    told = (sample.limit_kb for sample in reversed(samples))
    return next((limit for limit in told if limit), None)


def steps_kb(top_kb: float) -> list[float]:
    """Return three to six round values from 0, the highest at most ``top_kb``."""
    rough = top_kb / 4.2
    unit = _GIB_KB if top_kb >= _GIB_KB / 10 else 1024
    power = 10 ** math.floor(math.log10(rough / unit))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power * unit >= rough)
    many = int(top_kb / (step * unit) + 1e-9)
    return [number * step * unit for number in range(many + 1)]


def _total(point: Point) -> float:
    return point.total


def _wanted(story: Story, main: Attempt) -> bool:
    if not main.samples or not story.clock or story.main is None:
        return False
    limit, last = limit_kb(main.samples), main.samples[-1]
    used = last.cgroup_kb or sum(last.rss_kb.values())
    full = limit is not None and used >= _FULL * limit
    return full or story.main.verdict.cause in OF_MEMORY


def _areas(found: Sequence[Point], frame: _Frame, *, split: bool) -> list[Area]:
    if len(found) < 2:  # noqa: PLR2004 (one point has no area)
        return []
    floor = tuple((p.x, frame.bottom) for p in found)
    middle = tuple((p.x, frame.y(p.others)) for p in found)
    top = tuple((p.x, frame.y(p.total)) for p in found)
    others = Area("others", middle, floor)
    return [others, Area("own", top, middle)] if split else [others]


def _cgroup(lines: Sequence[Sequence[Point]], frame: _Frame) -> list[Line]:
    """Return what the cgroup held, where that is more than its ranks did."""
    found = []
    for one in lines:
        held = [(p, p.cgroup) for p in one if p.cgroup is not None]
        if any(kb > p.total * (1 + _APART) for p, kb in held):
            found.append(Line("cgroup", tuple((p.x, frame.y(kb)) for p, kb in held)))
    return found


def _values(frame: _Frame, limit: float | None) -> tuple[list[Line], list[Text]]:
    lines, texts = [], []
    steps = steps_kb(frame.top_kb)
    for kb in steps:
        y = frame.y(kb)
        lines.append(Line("grid", ((LEFT, y), (RIGHT, y))))
        number, unit = size(kb).split("\N{NO-BREAK SPACE}") if kb else ("0", "")
        text = f"{number}\N{NO-BREAK SPACE}{unit}" if kb == steps[-1] else number
        texts.append(Text(LEFT - 8, y + 4, text, "axis", "end"))
    if limit is not None:
        y = frame.y(limit)
        lines.append(Line("limit", ((LEFT, y), (RIGHT, y))))
    return lines, texts


def _crowns(
    attempts: Sequence[Attempt],
    lines: Sequence[Sequence[Point]],
    first: frozenset[int],
    frame: _Frame,
    scale: Scale,
) -> tuple[Mark, ...]:
    """Return a mark where each attempt's first rank died, if it is the page's."""
    found = []
    for attempt, one in zip(attempts, lines, strict=True):
        died_s = began_s(attempt)
        if one and died_s is not None and first and named(attempt) == first:
            x = scale.x(died_s)
            found.append(Mark("died", x, frame.y(one[-1].total)))
    return tuple(found)


def _gutter(
    main: Attempt, frame: _Frame, limit: int | None, *, near: bool
) -> list[Text]:
    first, others = growth.sides(main)
    own, rest = growth.held(main.samples, first), growth.held(main.samples, others)
    rest_kb = rest.last_kb if rest else 0.0
    blocks: list[tuple[float, list[tuple[str, str]]]] = []
    if limit is not None:
        far = "" if near else ", far above"
        y = frame.top if near else frame.top - 8
        blocks.append((y, [("bold", f"limit {size(limit)}{far}")]))
    if own and first:
        middle = frame.y(rest_kb + own.last_kb / 2)
        who = ranks_words(first)
        blocks.append(
            (middle, [("first", f"{who}: {size(own.last_kb)}"), ("fplain", _rate(own))])
        )
    if rest and others:
        who = _others(first, others)
        each = f"{size(rest_kb / len(others))} each, {_rate(rest)}"
        more = each if len(others) > 1 else _rate(rest)
        said = [("plain", f"{who}: {size(rest_kb)}"), ("muted", more)]
        blocks.append((frame.y(rest_kb / 2), said))
    heights = [16.0 * len(block) + 5 for _, block in blocks]
    wanted = [y - (h - 5) / 2 for (y, _), h in zip(blocks, heights, strict=True)]
    tops = apart(wanted, heights, frame.bottom + 4)
    return [
        gutter(top + 12 + 16 * number, text, kind)  # type: ignore[arg-type]
        for top, (_, block) in zip(tops, blocks, strict=True)
        for number, (kind, text) in enumerate(block)
    ]


def _others(first: frozenset[int], others: frozenset[int]) -> str:
    if not first:
        return f"all {len(others)} ranks" if len(others) > 1 else "the rank"
    return f"the other {len(others)}" if len(others) > 1 else "the other rank"


def _rate(held: growth.Growth) -> str:
    if not held.per_minute_kb:
        return "flat"
    sign = "+" if held.per_minute_kb > 0 else "\N{MINUS SIGN}"
    return f"{sign}{size(abs(held.per_minute_kb))} per minute"
