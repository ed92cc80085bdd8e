"""Stacks of ranks, with the frames marked that only the first rank is in. Pure."""

from __future__ import annotations

from typing import Final, NamedTuple

from dsup.report.html.values import Story
from dsup.report.html.words import capped

STACKS_MAX: Final = 16
LINES_MAX: Final = 400

_LINE_MAX: Final = 1000
_FRAME: Final = "File "


class Marked(NamedTuple):
    """A rank's stack.

    Attributes:
        lines: each with whether no other rank has that frame.
    """

    rank: int
    first: bool
    lines: tuple[tuple[str, bool], ...]


def marked(story: Story, most_chars: int) -> list[Marked]:
    """Return the stacks, first ranks on top.

    Args:
        story: what the page tells.
        most_chars: so much of all of them together is shown.
    """
    first = set(story.main.verdict.first_ranks) if story.main else set()
    order = sorted(story.stacks, key=lambda one: (one.rank not in first, one.rank))
    others: set[str] = set()
    for one in order:
        if one.rank not in first:
            others.update(map(str.strip, one.text.splitlines()[:LINES_MAX]))
    found, room = [], most_chars
    for one in order[:STACKS_MAX]:
        lines = [capped(line, _LINE_MAX) for line in one.text.splitlines()[:LINES_MAX]]
        room -= sum(map(len, lines))
        if room < 0:
            break
        own = one.rank in first and bool(others)
        rows = tuple((line, own and _differs(line, others)) for line in lines)
        found.append(Marked(one.rank, one.rank in first, rows))
    return found


def _differs(line: str, others: set[str]) -> bool:
    return _FRAME in line and line.strip() not in others
