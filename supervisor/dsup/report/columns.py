"""Text in columns: how wide it is, where it wraps, what is cut away. Pure.

Nothing here trusts a text: whoever made it may have wanted to move the cursor, to
begin a line of its own, or to be as long as possible.
"""

from __future__ import annotations

from typing import Final, NamedTuple
from unicodedata import east_asian_width

from dsup.core.printable import printable

TEXT_MAX_CHARS: Final = 2000
"""More than any text that fits; what goes beyond is not even looked at."""

TELLING: Final = (
    "Killed process",
    "Memory cgroup out of memory",
    "NVRM: Xid",
    "segfault at",
    "Error:",
    "Exception:",
    "error:",
)
"""Where the news begins in a raw line that is too long to be shown whole."""

_LEAD_CHARS: Final = 12
_DIRECTORY_MIN: Final = 24
_TO_ASCII: Final = str.maketrans({"…": "...", "·": "|", "━": "="})


class Columns(NamedTuple):
    """What a stream can show.

    Attributes:
        unicode: more than ASCII.
    """

    unicode: bool = True

    def legible(self, text: str) -> str:
        """Return a text as one line that moves no cursor, in the stream's letters."""
        line = printable(" ".join(text[:TEXT_MAX_CHARS].split()))
        if self.unicode:
            return line
        return line.translate(_TO_ASCII).encode("ascii", "backslashreplace").decode()

    def fit(self, text: str, cells: int, lines: int, *, raw: bool = False) -> list[str]:
        """Return a text in lines, cut where it is too long for them.

        Args:
            text: anything.
            cells: how wide a line may be.
            lines: how many there may be.
            raw: what is told may begin late, as in a log line.
        """
        dots = self.legible("…")
        whole = self.legible(text)
        rows = wrap(whole, cells)
        if len(rows) > lines and raw:
            whole = _without_directories(whole, dots)
            rows = wrap(whole, cells)
        if len(rows) > lines and raw:
            rows = wrap(_from_the_news(whole, cells // 2, dots), cells)
        if len(rows) > lines:
            rows = rows[:lines]
            rows[-1] = f"{_short(rows[-1], cells - width(dots) - 1)} {dots}"
        return rows


def width(text: str) -> int:
    """Return how many cells a text takes; a mark that takes none is counted as one."""
    if text.isascii():
        return len(text)
    return len(text) + sum(east_asian_width(letter) in "WF" for letter in text)


def wrap(text: str, cells: int) -> list[str]:
    """Return a line in parts that are no wider than this, broken at blanks."""
    rows = [""]
    for word in text.split():
        glued = f"{rows[-1]} {word}" if rows[-1] else word
        if width(glued) <= cells:
            rows[-1] = glued
            continue
        pieces = _pieces(word, cells)
        rows[-1:] = [rows[-1], *pieces] if rows[-1] else pieces
    return rows


def _pieces(word: str, cells: int) -> list[str]:
    pieces = []
    while word:
        piece = _start(word, cells)
        pieces.append(piece)
        word = word[len(piece) :]
    return pieces


def _start(text: str, cells: int) -> str:
    """Return as much of a text's beginning as fits, one letter at least."""
    piece = text[: max(1, cells)]
    while len(piece) > 1 and width(piece) > cells:
        piece = piece[:-1]
    return piece


def _without_directories(line: str, dots: str) -> str:
    """Return a line whose long paths have lost all but their last part.

    A C++ message begins with the path of its source file, which says less than the
    words behind it.
    """
    return " ".join(_last_part(word, dots) for word in line.split(" "))


def _last_part(word: str, dots: str) -> str:
    directory, slash, name = word.rpartition("/")
    if len(directory) < _DIRECTORY_MIN or not name:
        return word
    lead = directory[:1] if directory[0] in "[(\"'<" else ""
    return f"{lead}{dots}{slash}{name}"


def _short(text: str, cells: int) -> str:
    """Return what fits of a text that goes on, whole words of it if they are short."""
    piece = _start(text, cells)
    words = piece if text[len(piece) :][:1] in {"", " "} else piece.rpartition(" ")[0]
    return words if len(words) > len(piece) // 2 else piece


def _from_the_news(line: str, late: int, dots: str) -> str:
    """Return a line without its beginning if what is told begins late in it."""
    found = [at for at in map(line.find, TELLING) if at >= 0]
    at = min(found, default=0)
    if at < late:
        return line
    begin = line.rfind(" ", 0, max(0, at - _LEAD_CHARS)) + 1
    return f"{dots} {line[begin:]}"
