"""The second picture: the seconds around the death, counted from it. Pure.

In a picture of the whole run all deaths are one pixel.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from dsup.report.html import phrases
from dsup.report.html.chart import (
    LEFT,
    RIGHT,
    Bar,
    Chart,
    Mark,
    Text,
    TextKind,
    clear_of,
    gutter,
    vertical,
)
from dsup.report.html.grid import MARKS, TONES, Grid, grid_of, life_bars
from dsup.report.html.happened import BEFORE_S, TIER, event_heads, events
from dsup.report.html.lives import Attempt, RankLife
from dsup.report.html.rows import outcome
from dsup.report.html.scale import Scale, Stretch, Ticks, distance, ticks
from dsup.report.html.values import Story
from dsup.report.html.words import between, count, duration, fitted, later, size

_BRIEF_S: Final = 0.1
"""Shown before a death after which all is over at once: a second would hide it."""

AFTER_MAX_S: Final = 24 * 3600.0

_ROOM: Final = 336.0
_STRIP_PX: Final = 3.0


def last_seconds(story: Story) -> Chart | None:
    """Return the picture of the death; None where nothing tells of the time around."""
    found = _window(story)
    if found is None:
        return None
    attempt, zero_s, axis = found
    scale = _scale(axis, zero_s)
    heads, tiers = event_heads(events(story, attempt, zero_s), scale)
    top = 14 + TIER * tiers
    grid = grid_of(attempt, top, _ROOM)
    bars, marks, inside = _rows(story, attempt, grid, scale, zero_s)
    down = grid.bottom + 6
    lines = [vertical("grid", scale.x(zero_s + t), top - 6, down) for t in axis.at_s]
    lines += [vertical("event", head.x, head.y + 2, down) for head in heads]
    texts = [text for head in heads for text in head.texts]
    return Chart(
        title=_title(story, attempt),
        story=phrases.tale(story),
        height=down + 24,
        bars=tuple(bars),
        marks=tuple(marks),
        lines=tuple(lines),
        bands=grid.bands(),
        texts=(
            *grid.labels(),
            *texts,
            *inside,
            *_gutter(story, attempt, grid, zero_s),
            *_axis(story, scale, axis, zero_s, down + 14),
        ),
    )


def _title(story: Story, attempt: Attempt) -> str:
    alone = len(story.attempts) == 1 and story.launcher != "dsup"
    return "The last seconds" + ("" if alone else f" of attempt {attempt.number}")


def strip(story: Story) -> Chart | None:
    """Return all ranks around the death, 3 px each; None where nothing tells."""
    found = _window(story)
    if found is None:
        return None
    attempt, zero_s, axis = found
    scale = _scale(axis, zero_s)
    bars = []
    for number, life in enumerate(attempt.ranks):
        died_s = zero_s if _is_first(attempt, life) else None
        top = 4 + number * _STRIP_PX
        for kind, from_s, to_s in life_bars(attempt, [life], died_s):
            left, right = scale.x(from_s), scale.x(to_s)
            if right > left:
                bars.append(Bar(kind, left, right, top, _STRIP_PX))
    bottom = 4 + len(attempt.ranks) * _STRIP_PX
    labels = [
        Text(LEFT - 8, 4 + at * _STRIP_PX + 8, str(life.rank), "axis", "end")
        for at, life in enumerate(attempt.ranks)
        if at % 50 == 0
    ]
    lines = [vertical("grid", scale.x(zero_s + t), 0, bottom + 4) for t in axis.at_s]
    return Chart(
        title=f"All {len(attempt.ranks)} ranks",
        story=phrases.tale(story),
        height=bottom + 28,
        bars=tuple(bars),
        lines=tuple(lines),
        texts=(*labels, *_axis(story, scale, axis, zero_s, bottom + 18)),
    )


def _is_first(attempt: Attempt, life: RankLife) -> bool:
    """Return whether a death began in this rank."""
    return attempt.verdict is not None and life.rank in attempt.verdict.first_ranks


def caption(story: Story, zero_s: float, attempt: Attempt) -> str:
    """Return what the picture shows, and what exit order alone would say."""
    verdict = attempt.verdict
    seconds = f"Seconds after {story.at(zero_s)}, when it began."
    if verdict is None or len(verdict.first_ranks) != 1 or verdict.cause == "hang":
        return seconds
    ends = {life.rank: life.end_s for life in attempt.ranks if life.end_s is not None}
    own = ends.get(verdict.first_ranks[0])
    before = [rank for rank, end_s in ends.items() if own is not None and end_s < own]
    if own is None or not before or story.launcher != "dsup":
        return seconds
    gone = count(len(before), "other rank")
    was = "was" if len(before) == 1 else "were"
    late = duration(own - zero_s)
    return (
        f"{seconds} Exit order alone would mislead: {gone} {was} gone before rank "
        f"{verdict.first_ranks[0]}, which took {late} to go."
    )


def _window(story: Story) -> tuple[Attempt, float, Ticks] | None:
    """Return the attempt, when it died, and the axis around that; None for none."""
    attempt, zero_s = story.attempt, phrases.died_s(story)
    if attempt is None or zero_s is None or not attempt.ranks:
        return None
    ends = [life.end_s for life in attempt.ranks if life.end_s is not None]
    after_s = min(max([0.0, *(end_s - zero_s for end_s in ends)]), AFTER_MAX_S)
    before_s = max(min(BEFORE_S, max(0.6 * after_s, _BRIEF_S)), 0.03 * after_s)
    return attempt, zero_s, ticks(-before_s, after_s + 0.01 * (before_s + after_s))


def _scale(axis: Ticks, zero_s: float) -> Scale:
    return Scale((Stretch(zero_s + axis.from_s, zero_s + axis.to_s, LEFT, RIGHT - 8),))


def _rows(
    story: Story, attempt: Attempt, grid: Grid, scale: Scale, zero_s: float
) -> tuple[list[Bar], list[Mark], list[Text]]:
    lives = {life.rank: life for life in attempt.ranks}
    bars: list[Bar] = []
    marks: list[Mark] = []
    texts: list[Text] = []
    for number, row in enumerate(grid.rows):
        here = [lives[rank] for rank in row.ranks]
        died_s = zero_s if row.band else None
        for kind, from_s, to_s in life_bars(attempt, here, died_s):
            left, right = scale.x(from_s), scale.x(to_s)
            if to_s < scale.stretches[0].from_s or right <= left:
                continue
            bars.append(grid.bar(kind, number, left, right))
            if kind == "dying":
                texts += _dying(story, attempt, (left, right), grid.base(number))
        marks += _marks(grid, number, here, zero_s, scale)
    return bars, marks, texts


def _marks(
    grid: Grid, number: int, here: Sequence[RankLife], zero_s: float, scale: Scale
) -> list[Mark]:
    row = grid.rows[number]
    mark = MARKS.get(row.role.kind)
    if mark is None:
        return []
    if row.role.kind == "first":
        return [grid.mark(mark, scale.x(zero_s), number)]
    ends = [life.end_s for life in here if life.end_s is not None]
    places = {round(scale.x(at_s), 1) for at_s in ends}
    ends_x = sorted({min(places), max(places)}) if places else []
    return [grid.mark(mark, x, number) for x in ends_x]


def _dying(
    story: Story, attempt: Attempt, span: tuple[float, float], y: float
) -> list[Text]:
    verdict, left, right = attempt.verdict, *span
    if story.launcher != "dsup":
        return []
    own = 0
    if verdict and attempt.samples:
        last = attempt.samples[-1]
        own = sum(last.rss_kb.get(rank, 0) for rank in verdict.first_ranks)
    hangs = verdict is not None and verdict.cause == "hang"
    words = ["hangs" if hangs else "dying"]
    if story.main and story.main.verdict.cause == "host_oom" and own:
        words = [f"dying: the kernel frees {size(own)}", "dying"]
    for text in words:
        inside = Text((left + right) / 2, y - 0.4, text, "in", "middle")
        if inside.width + 24 < right - left:
            return [inside]
    return []


def _gutter(story: Story, attempt: Attempt, grid: Grid, zero_s: float) -> list[Text]:
    lives = {life.rank: life for life in attempt.ranks}
    ender = phrases.ender(story)
    what = "end" if story.launcher == "dsup" else "last line"
    texts = [gutter(grid.top - 9, f"{what}, seconds after it began", "axis")]
    for number, row in enumerate(grid.rows):
        here = [lives[rank] for rank in row.ranks]
        late = _late([life.end_s for life in here if life.end_s is not None], zero_s)
        words = outcome(row.role, None if row.fold else here[0], ender)
        kind: TextKind = TONES.get(row.role.kind, "plain")
        if row.role.kind == "first":
            kind = "first" if row.band else "bold"
            gone = "gone" if story.launcher == "dsup" else "last line"
            at_once = late == later(0.0)
            words, late = "first", "" if at_once or not late else f"{gone} {late}"
        elif not words and late and story.launcher != "dsup":
            words = "last line"
        room = fitted_pair(words, late, bold=kind == "first")
        texts.append(gutter(grid.base(number), room, kind))
    return texts


def fitted_pair(words: str, late: str, *, bold: bool) -> str:
    """Return words and how much later, the words cut so that the rest is seen."""
    if not words or not late:
        return words or late
    rest = f" · {late}"
    room = 198 - Text(0, 0, rest, "bold" if bold else "plain").width
    return f"{fitted(words, 12.5, room, bold=bold)}{rest}"


def _late(ends: Sequence[float], zero_s: float) -> str:
    if not ends:
        return ""
    return between(min(ends) - zero_s, max(ends) - zero_s)


def _axis(
    story: Story, scale: Scale, axis: Ticks, zero_s: float, y: float
) -> list[Text]:
    zero = Text(scale.x(zero_s), y, f"0 = {story.at(zero_s)}", "bold", "middle")
    texts = [zero]
    for at_s in axis.at_s:
        if abs(at_s) < 1e-9:  # noqa: PLR2004
            continue
        words = distance(at_s, axis.step_s)
        text = Text(scale.x(zero_s + at_s), y, words, "axis", "middle")
        if clear_of(text, texts):
            texts.append(text)
    return texts
