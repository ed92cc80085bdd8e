"""What a viewer put before every line of a file: its number, a mark, an indentation.

A log that was copied out of a pager, an editor, a mail or a document has a gutter. It
tells nothing of a rank, and it hides how lines begin. It is taken off only where it is
plain: numbers that count the lines one by one, a mark of quotation before all of them,
or a blank margin behind which log lines begin.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from dsup.facts.logs.prefixes import KNOWN
from dsup.facts.logs.raw import RawLine
from dsup.facts.logs.stamps import stamp

_LEAST: Final = 5
_QUOTED_LEAST: Final = 2
_QUOTE: Final = b"> "
_BOLD: Final = re.compile(rb"(?<!\*)\*\*(?!\*)")
"""A mark of emphasis; three asterisks are a launcher's own."""

_LOOKED_AT: Final = 512
_NUMBER: Final = re.compile(rb" {0,8}(\d{1,8})(?:\t| {0,4}\| ?| {1,3}|$)")
_BLANKS: Final = re.compile(rb"[ \t]{0,512}")
_NAME: Final = re.compile(r"[\w.-]{1,64}: |\([\w.]{1,80} pid=\d{1,9}[^)]{0,80}\) ")
_FRAME: Final = "  File "


class Gutter:
    """The gutter of a file.

    Args:
        sample: its first lines.
    """

    def __init__(self, sample: Sequence[RawLine]) -> None:
        told = [line for line in sample if line.data.strip()]
        self._counted = _first_number(told)
        self._margin = b"" if self._counted is not None else _margin(told)

    def off(self, lines: Iterable[RawLine]) -> Iterator[RawLine]:
        """Yield lines without it; a line that has none stays as it is."""
        if self._counted is None and not self._margin:
            yield from lines
            return
        for line in lines:
            yield line._replace(data=self._bare(line))

    def _bare(self, line: RawLine) -> bytes:
        if self._margin == _QUOTE:
            bare = line.data.removeprefix(b">").removeprefix(b" ")
            return _BOLD.sub(b"", bare)
        if self._counted is None:
            return line.data.removeprefix(self._margin)
        found = _NUMBER.match(line.data)
        if found and int(found[1]) - line.number == self._counted:
            return line.data[found.end() :]
        return line.data


def _first_number(told: Sequence[RawLine]) -> int | None:
    """Return how far the printed numbers are ahead of the lines' own; None for none."""
    if len(told) < _LEAST:
        return None
    found = [_NUMBER.match(line.data) for line in told]
    ahead = {
        int(one[1]) - line.number if one else None
        for one, line in zip(found, told, strict=True)
    }
    return ahead.pop() if len(ahead) == 1 else None


def _margin(told: Sequence[RawLine]) -> bytes:
    """Return what stands before all lines, if lines of a log begin right behind it."""
    if len(told) >= _QUOTED_LEAST and all(line.data[:1] == b">" for line in told):
        return _QUOTE
    blanks = [found[0] for line in told if (found := _BLANKS.match(line.data))]
    margin = min(blanks, key=len, default=b"")
    if not margin or not all(blank.startswith(margin) for blank in blanks):
        return b""
    rests = (line.data[len(margin) :][:_LOOKED_AT] for line in told)
    return (
        margin if any(_begins(rest.decode(errors="replace")) for rest in rests) else b""
    )


def _begins(text: str) -> bool:
    """Return whether a log line begins here, behind a node's name or at once."""
    named = _NAME.match(text)
    start = named.end() if named else 0
    if text.startswith(_FRAME, start):
        return False
    return KNOWN.match(text, start) is not None or stamp(text) is not None
