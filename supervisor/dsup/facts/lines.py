"""A rank's bytes as lines that can be matched: bars, colours and prefixes taken off."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from dsup.core.printable import printable

TAIL_BYTES: Final = 64 * 1024
LINES_MAX: Final = 2000
"""So many lines are looked at, the last ones: a traceback of any depth is shorter."""

_LINE_MAX_CHARS: Final = 8192
_HALF: Final = _LINE_MAX_CHARS // 2
_PREFIXES_MAX: Final = 4
_CONTINUATIONS: Final = bytes(range(0x80, 0xC0))

_ESCAPE: Final = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]{0,64}[ -/]{0,8}[@-~]"  # CSI: colours, cursor
    r"|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)"  # OSC and its like: titles, links
    r"|\x1b[ -/]{0,8}[0-~]"
)
_RANK: Final = re.compile(r"\[rank(\d{1,6})\]: ?")
_TEE: Final = re.compile(r"\[[\w.,:-]{1,64}\](?:<std(?:err|out)>)?: ?|\d{1,6}: ")
_GLUED: Final = re.compile(r"\[rank\d{1,6}\]: ?$")
_GLUED_HEAD: Final = re.compile(r"\[rank(\d{1,6})\]: ?Traceback ")


class Line(NamedTuple):
    """One line of a stream.

    Attributes:
        number: its number, from 1 for the first line of what was given.
        text: printable and without prefixes; its indentation is kept.
        ranked: it had torch's ``[rank3]: `` before it, which torch's excepthook (since
            2.3) puts before each line of an uncaught exception.
        foreign: the number in it is another rank's; it is left where it is.
    """

    number: int
    text: str
    ranked: bool
    foreign: bool = False


def lines_of(data: bytes, rank: int | None = None) -> list[Line]:
    """Return the last lines of a stream.

    The cost is linear in the 64 KiB that are looked at, whatever they hold.

    Args:
        data: its end; it may begin inside a line, or inside a character.
        rank: whose stream it is; None if unknown: then no line is foreign.
    """
    tail = data[-TAIL_BYTES:]
    if len(tail) < len(data) or is_cut(data):
        tail = tail[:3].lstrip(_CONTINUATIONS) + tail[3:]
    text = tail.decode(errors="backslashreplace")
    kept = text.removesuffix("\n").rsplit("\n", LINES_MAX)
    skipped = kept[0].count("\n") if len(kept) > LINES_MAX else 0
    first = 1 + data.count(b"\n", 0, len(data) - len(tail)) + skipped
    kept[0] = kept[0].rpartition("\n")[2]
    return [_line(first + i, raw, rank) for i, raw in enumerate(kept)]


def is_cut(data: bytes) -> bool:
    """Return whether a tail may have lost its beginning."""
    return len(data) >= TAIL_BYTES or data.count(b"\n") > LINES_MAX


def without_rank(text: str) -> str:
    """Return the end of a text without torch's prefix there; a bar stood before it."""
    return _GLUED.sub("", text[-32:])


def _line(number: int, raw: str, rank: int | None) -> Line:
    text = _clean(raw)
    ranked = False
    for _ in range(_PREFIXES_MAX):
        found = _RANK.match(text)
        if found is not None and rank not in {None, int(found[1])}:
            return Line(number, text, ranked=False, foreign=True)
        ranked = ranked or found is not None
        found = found or _TEE.match(text)
        if found is None:
            break
        text = text[found.end() :]
    glued = _GLUED_HEAD.search(text)
    foreign = glued is not None and rank not in {None, int(glued[1])}
    return Line(number, text, ranked, foreign)


def _clean(raw: str) -> str:
    """Return a line as a terminal would have left it, without its colours."""
    state = raw.rstrip("\r").rpartition("\r")[2]
    if len(state) > _LINE_MAX_CHARS:
        state = f"{state[:_HALF]} … {state[-_HALF:]}"
    if state.isprintable():
        return state
    return printable(_ESCAPE.sub("", state).replace("\t", "    ")).rstrip()
