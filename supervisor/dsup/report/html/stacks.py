"""Stacks of ranks, with the frame marked in which the first rank leaves the others.

Ranks run the same program: from the outermost frame inwards their stacks are the same
up to the line where one went another way. That line tells most; what lies further in is
only its own. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, Literal, NamedTuple, TypeAlias

from dsup.report.html.values import Story
from dsup.report.html.words import capped

Part: TypeAlias = Literal["", "own", "leaves"]
"""Of a line: none of a stack that differs, a frame of its own, or the first of them."""

STACKS_MAX: Final = 16
LINES_MAX: Final = 400

_LINE_MAX: Final = 1000
_MAIN: Final = re.compile(r"\s*(?:Current thread 0x|main thread:)")
_HEAD: Final = re.compile(
    r"\s*(?:(?:Current thread|Thread) 0x|main thread:|thread\b.*:$)"
)
_FRAME: Final = re.compile(r'\s*File "|\s{4}\S.{0,1000} in \S')


class Marked(NamedTuple):
    """A rank's stack.

    Attributes:
        lines: each with what it is beside the stacks of the other ranks.
    """

    rank: int
    first: bool
    lines: tuple[tuple[str, Part], ...]


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
        compared = one.rank in first and bool(others)
        rows = tuple(zip(lines, _parts(lines, others, compared=compared), strict=True))
        found.append(Marked(one.rank, one.rank in first, rows))
    return found


def _parts(lines: Sequence[str], others: set[str], *, compared: bool) -> list[Part]:
    """Return what each line is; of every main thread one frame is the first to differ.

    Frames stand with the innermost first, so that one is the last of its thread.
    """
    parts: list[Part] = []
    last: int | None = None
    main = False
    for number, line in enumerate([*lines, ""]):
        if last is not None and (not line.strip() or not _FRAME.match(line)):
            parts[last] = "leaves"
            last = None
        if _HEAD.match(line):
            main = _MAIN.match(line) is not None
        frame = compared and _FRAME.match(line) is not None
        own = frame and line.strip() not in others
        last = number if own and main else last
        parts.append("own" if own else "")
    return parts[:-1]
