"""Lines that a terminal broke at its margin, put together again.

A copy from a terminal has rows: none is longer than its width, and those that were
broken are exactly so wide. They are joined only where that is plain: of the rows at the
beginning of the file that are as wide as the widest, nearly all, and at least two, are
followed by a row that begins like no line of its own. A row that begins like the one
before it is another row of a table.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Final

from dsup.facts.logs.prefixes import KNOWN
from dsup.facts.logs.raw import RawLine

_NARROW: Final = 60
_WIDE: Final = 512
_LEAST: Final = 2
_MOST: Final = 0.7
_ROWS_MAX: Final = 64
_HEAD_CHARS: Final = 4
_PADDING: Final = "  "


class Margin:
    """Where the rows of a file were broken.

    Args:
        sample: its first lines.
    """

    def __init__(self, sample: Sequence[RawLine]) -> None:
        rows = [_text(line) for line in sample]
        self._width = max(map(len, rows), default=0)
        full = [row for row in rows if len(row) == self._width]
        self._padded = any(row.endswith(_PADDING) for row in full)
        pairs = [pair for pair in pairwise(rows) if self._is_full(pair[0])]
        broken = {text for text, follows in pairs if _continues(text, follows)}
        told = _NARROW <= self._width <= _WIDE and len(broken) >= _LEAST
        if not told or len(broken) < len(pairs) * _MOST:
            self._width = 0

    def _is_full(self, text: str) -> bool:
        """Return whether a row goes to the margin."""
        at_margin = len(text) == self._width
        return at_margin and not text.endswith(_PADDING if self._padded else " ")

    def joined(self, lines: Iterable[RawLine]) -> Iterator[RawLine]:
        """Yield lines, broken ones as one with the number of its first row."""
        if not self._width:
            yield from lines
            return
        held: list[RawLine] = []
        for line in lines:
            if held and not (len(held) < _ROWS_MAX and self._goes_on(held[-1], line)):
                yield self._one(held)
                held = []
            held.append(line)
        if held:
            yield self._one(held)

    def _goes_on(self, row: RawLine, after: RawLine) -> bool:
        text = _text(row)
        if not self._is_full(text) or after.number != row.number + 1:
            return False
        return _continues(text, _text(after))

    def _one(self, rows: list[RawLine]) -> RawLine:
        if len(rows) == 1:
            return rows[0]
        data = b"".join(row.data.rstrip(b"\r\n") for row in rows)
        return rows[0]._replace(data=data)


def _continues(text: str, follows: str) -> bool:
    """Return whether a row is the rest of the one before."""
    if not follows.strip() or follows.startswith(_PADDING) or KNOWN.match(follows):
        return False
    if not any(map(str.isalnum, text)) or not any(map(str.isalnum, follows)):
        return False
    return text[:_HEAD_CHARS] != follows[:_HEAD_CHARS]


def _text(line: RawLine) -> str:
    """Return a line as the terminal counted it; colours take no room there."""
    return line.data[: 4 * _WIDE].rstrip(b"\r").decode(errors="replace")
