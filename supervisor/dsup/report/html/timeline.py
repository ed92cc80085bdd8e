"""The first picture: the whole run, a row a rank, with memory below it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from dsup.report.html import memory, phrases
from dsup.report.html.chart import (
    GUTTER,
    LEFT,
    RIGHT,
    Anchor,
    Bar,
    Chart,
    Line,
    Mark,
    Text,
    clear_of,
    gutter,
    vertical,
)
from dsup.report.html.grid import MARKS, TONES, Grid, grid_of, life_bars
from dsup.report.html.lives import Attempt, RankLife, began_s, named, roles
from dsup.report.html.rows import outcome
from dsup.report.html.scale import Scale, Stretch, Ticks, label, ticks
from dsup.report.html.values import Story
from dsup.report.html.words import clock, ended

BLOCKS_AFTER_S: Final = 6 * 3600
"""A longer run shows its last attempt whole and older ones as blocks."""

ATTEMPTS_MAX: Final = 12
BLOCKS_MAX: Final = 6

_BLOCK: Final = 58.0
_BLOCK_GAP: Final = 8.0
_HEAD: Final = 42.0
_ROOM: Final = 232.0
_GAPS_PX: Final = 5.0
"""Checkpoints nearer to each other than this are not drawn."""


def whole_run(story: Story) -> Chart | None:
    """Return the picture of the whole run; None where no rank is known."""
    main = story.attempt
    if main is None or not main.ranks:
        return None
    attempts = shown(story)
    scale, found = _scale(attempts, story.clock)
    grid = grid_of(main, _HEAD, _ROOM)
    heads, brackets = _heads(attempts, scale, story, main)
    drawn = [_drawn(attempt, grid, scale) for attempt in attempts]
    curve = memory.curve(story, attempts, scale, (grid.top, grid.bottom))
    axis = curve.bottom if curve else grid.bottom + 4
    across = [vertical("grid", scale.x(t), grid.top - 6, axis) for t in found.at_s]
    texts = [*grid.labels(), *heads, *_gutter(grid, main, story)]
    if story.clock:
        texts += _axis(scale, found, axis + 17, story.zone)
    if curve:
        texts += curve.texts
    return Chart(
        title="Timeline of all ranks",
        story=phrases.tale(story),
        height=axis + (26 if story.clock else 8),
        bars=tuple(bar for one in drawn for bar in one.bars),
        marks=(
            *(mark for one in attempts for mark in _stills(one, grid, scale)),
            *(mark for one in (*drawn, curve) if one for mark in one.marks),
        ),
        lines=(
            *across,
            *brackets,
            *(line for one in drawn for line in one.gaps),
            *(curve.lines if curve else ()),
        ),
        bands=grid.bands(),
        areas=curve.areas if curve else (),
        texts=tuple(texts),
    )


def shown(story: Story) -> tuple[Attempt, ...]:
    """Return the attempts that are drawn: the last ones."""
    recent = story.attempts[-ATTEMPTS_MAX:]
    whole_s = recent[-1].end_s - recent[0].start_s
    long = whole_s > BLOCKS_AFTER_S and len(recent) > 1
    return recent[-BLOCKS_MAX - 1 :] if long else recent


def in_blocks(attempts: Sequence[Attempt]) -> bool:
    """Return whether older attempts are drawn as blocks of one width."""
    return (
        len(attempts) > 1 and attempts[-1].end_s - attempts[0].start_s > BLOCKS_AFTER_S
    )


class _Drawn(NamedTuple):
    """One attempt in all rows."""

    bars: list[Bar]
    marks: list[Mark]
    gaps: list[Line]


def _scale(attempts: Sequence[Attempt], clock: bool) -> tuple[Scale, Ticks]:
    last, older = attempts[-1], attempts[:-1]
    if not in_blocks(attempts):
        older = ()
    from_s = last.start_s if older else attempts[0].start_s
    found = ticks(from_s, last.end_s)
    if not clock:
        found = Ticks(from_s, max(last.end_s, from_s + 1e-3), 1, ())
    blocks, x = [], float(LEFT)
    for attempt in older:
        blocks.append(Stretch(attempt.start_s, attempt.end_s, x, x + _BLOCK))
        x += _BLOCK + _BLOCK_GAP
    # A pixel or two of air, so that the first bar does not touch the first tick.
    air_s = (found.to_s - found.from_s) * 0.008
    to_s = max(found.to_s, last.end_s + 2 * air_s)
    return Scale((*blocks, Stretch(found.from_s - air_s, to_s, x, RIGHT))), found


def _axis(scale: Scale, found: Ticks, y: float, zone: str) -> list[Text]:
    texts = [Text(GUTTER, y, zone, "axis")] if zone else []
    for at_s in found.at_s:
        text = Text(scale.x(at_s), y, label(at_s, found.step_s), "axis", "middle")
        if clear_of(text, texts):
            texts.append(text)
    return texts


def _heads(
    attempts: Sequence[Attempt], scale: Scale, story: Story, main: Attempt
) -> tuple[list[Text], list[Line]]:
    """Return the name of each attempt above it, the last one's first."""
    texts: list[Text] = []
    lines: list[Line] = []
    alone = len(story.attempts) == 1 and story.launcher != "dsup"
    for number in reversed(range(len(attempts))):
        attempt = attempts[number]
        left, right = scale.x(attempt.start_s), scale.x(attempt.end_s)
        right = max(right, left + 3)
        if not alone:
            points = ((left, 25.0), (left, 19.0), (right, 19.0), (right, 25.0))
            lines.append(Line("bracket", points))
            before = attempts[number - 1] if number else None
            texts += _head(attempt, before, left, texts)
    end = "last line" if story.launcher != "dsup" else "end"
    heading = end if alone else f"{end} of attempt {main.number}"
    if _goes_on(story, main):
        heading = f"now, in attempt {main.number}"
    return [*texts, gutter(25.0, heading, "axis")], lines


def _head(
    attempt: Attempt, before: Attempt | None, left: float, taken: Sequence[Text]
) -> list[Text]:
    for name in (f"attempt {attempt.number}", str(attempt.number)):
        places: tuple[tuple[float, Anchor], ...] = ((left, "start"), (RIGHT, "end"))
        for x, anchor in places:
            if anchor == "end" and left < RIGHT - 160:
                continue
            head = Text(x, 9, name, "bold", anchor)
            if head.box[2] > RIGHT + 4 or not clear_of(head, taken):
                continue
            full = head._replace(tail=phrases.attempt_detail(attempt, before))
            fits = full.box[2] <= RIGHT + 14 and clear_of(full, taken)
            return [full] if fits and anchor == "start" else [head]
    return []


def _drawn(attempt: Attempt, grid: Grid, scale: Scale) -> _Drawn:
    drawn = _Drawn([], [], [])
    lives = {life.rank: life for life in attempt.ranks}
    found = roles(attempt)
    first, died_s = named(attempt), began_s(attempt)
    saves = _gaps(attempt, scale)
    for number, row in enumerate(grid.rows):
        here = [lives[rank] for rank in row.ranks if rank in lives]
        if not here:
            continue
        went_first = row.ranks[0] in first
        until_s = attempt.end_s if died_s is None else died_s
        pieces = life_bars(attempt, here, until_s if went_first else None)
        for kind, from_s, to_s in pieces:
            left, right = scale.x(from_s), scale.x(to_s)
            drawn.bars.append(grid.bar(kind, number, left, right))
        kinds = {found[life.rank].kind for life in here}
        mark = MARKS.get(found[here[0].rank].kind) if len(kinds) == 1 else None
        ends = [life.end_s for life in here if life.end_s is not None]
        at_s = max(ends, default=None)
        if went_first and died_s is not None:
            at_s = died_s
        if mark and at_s is not None:
            drawn.marks.append(grid.mark(mark, scale.x(at_s), number))
        half = grid.thick / 2 + 0.5
        middle = grid.middle(number)
        span = scale.x(here[0].start_s) + 2, scale.x(here[0].end_s or attempt.end_s) - 2
        drawn.gaps.extend(
            vertical("gap", x, middle - half, middle + half)
            for x in saves
            if span[0] < x < span[1]
        )
    return drawn


def _stills(attempt: Attempt, grid: Grid, scale: Scale) -> list[Mark]:
    """Return a mark in each row of ranks for each time at which they seemed to hang."""
    return [
        grid.mark("still", scale.x(doubt.at_s), number)
        for doubt in attempt.doubts
        if attempt.start_s <= doubt.at_s <= attempt.end_s
        for number, row in enumerate(grid.rows)
        if not set(doubt.ranks).isdisjoint(row.ranks)
    ]


def _gaps(attempt: Attempt, scale: Scale) -> list[float]:
    at = [scale.x(at_s) for at_s in attempt.checkpoints]
    near = any(b - a < _GAPS_PX for a, b in pairwise(at))
    return [] if near else at


def _gutter(grid: Grid, main: Attempt, story: Story) -> list[Text]:
    lives = {life.rank: life for life in main.ranks}
    ender = phrases.ender(story)
    texts = []
    for number, row in enumerate(grid.rows):
        life = None if row.fold else lives[row.ranks[0]]
        words = outcome(row.role, life, ender)
        kind = TONES.get(row.role.kind, "plain")
        if row.role.kind == "first":
            words, kind = phrases.first_words(story), "first" if row.band else "bold"
        elif _goes_on(story, main) and row.role.kind == "open":
            words = "runs"
        elif row.fold:
            words = words or "no end seen"
        tip = _tip(life, story) if life else ""
        texts.append(gutter(grid.base(number), words, kind, tip))
    return texts


def _goes_on(story: Story, main: Attempt) -> bool:
    return story.running and main.number == story.attempts[-1].number


def _tip(life: RankLife, story: Story) -> str:
    """Return what a pointer on a row's end shows."""
    parts = [f"rank {life.rank}"]
    if life.pid is not None:
        parts.append(f"pid {life.pid}")
    if story.clock:
        gone = story.at(life.end_s) if life.end_s is not None else "?"
        parts.append(f"{clock(life.start_s, 3)} to {gone}")
    parts += [ended(life.status)] if life.status is not None else []
    parts += [f"step {life.step}"] if life.step is not None else []
    return ", ".join(parts)
