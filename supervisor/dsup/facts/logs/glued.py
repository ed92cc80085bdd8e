"""Where one line holds several statements, and where a box or a table holds one.

A process that ends writes where a progress bar of another has left the cursor, and two
processes write into one line: the second statement starts where a known prefix or the
end of a bar stands in mid-line.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Final

PARTS_MAX: Final = 64
_PADDING: Final = " " * 8
_PADDED_LEAST: Final = 2
_TABLE_MAX_CHARS: Final = 400
_PREFIX_MAX_CHARS: Final = 96

_START: Final = re.compile(
    r"\[rank\d{1,6}\]:"
    r"|\[(?:default\d{1,4}|[\w.-]{1,64}:\d{1,3}|\d{1,4})\]:(?=\[[EWIFC]|\[rank\d|Trace)"
    r"|\[(?:\d{1,9},)?\d{1,6}\]<std(?:err|out)>:"
    r"|\[[EWIFC](?:\d{3,4} \d\d:\d\d:\d\d\.\d{1,9})? [\w./-]{1,200}\.(?:cpp|cu|h):\d"
    r"|(?<![\w/])[EWIFC]\d{4} \d\d:\d\d:\d\d\.\d{3,9} {1,6}\d{1,20} "
    r"[\w./<>-]{1,300}:\d{1,6}\]"
    r"|(?<!\w)(?:WARNING|ERROR|INFO|CRITICAL): ?torch\."
    r"|\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[,.]\d{3}\] ?(?:\[|torch)"
    r"|Traceback \(most recent call last\):"
    r"|(?:slurmstepd|srun): (?:error|Job|Force)"
    r"|terminate called (?:after|without|rec)"
    r"|(?<![\w.-])[\w.-]{1,128}:\d{1,9}:\d{1,9} \[-?\d{1,9}\] (?:NCCL |\w{1,32}[/.])"
    r"|(?<![\w.-])[\w.-]{1,128}:\d{1,9}:\d{1,9} NCCL "
    r"|\[[\w.-]{1,64}:\d{1,7} {0,6}:\d{1,7}:\d{1,7}\] Caught signal "
    r"|Fatal Python error: "
    r"|(?<=\S) {1,4}what\(\): "
)
_INTERRUPT: Final = "^C"
"""What a terminal shows of Ctrl-C, before what is printed next."""

_START_WORDS: Final = (
    *("Traceback (", "terminate called ", "Fatal Python ", "srun: ", "slurmstepd: "),
    "what(): ",
    *(
        ":torch.",
        ": torch.",
        "[rank",
        "[default",
        "]:",
        "]<std",
        ".cpp:",
        ".cu:",
        ".h:",
        "[20",
    ),
    *("[19", "Caught signal "),
)
_CLOCK_OR_PIDS: Final = re.compile(r":\d{1,9}:\d{1,9}[ .]")
"""Without one of these words, or this, nothing starts in mid-line."""

_BAR_END: Final = re.compile(
    r"(?:(?<=\d)s/\w{1,12}|(?<=[\w?])/s)(?:, [^\[\]]{0,300})?\](?=\S)"
)
_BAR: Final = re.compile(r"\d%\|")

_SIDES: Final = "│┃║"
_CORNERS: Final = "╭┌╔╰└╚├╞╮┐╗╯┘╝┤╡─━═┄╌"
_TABLE: Final = re.compile(r"\|? {0,4}--+(?: \| ?--+)+ ?\|?$|\|(?:[-: ]{2,200}\|)+$")
_SCROLLED: Final = re.compile(r" {2,40}\[\d{1,6}/\d{1,6}\]$")
_RICH_SOURCE: Final = re.compile(r" {2,80}([\w.<>-]{1,64}:\d{1,6})$")
_MARGIN_CHARS: Final = 80
"""So far from the end of a line its right margin is looked for."""


def parts(text: str) -> list[str]:
    """Return the statements of a line, in order."""
    places = set[int]()
    if any(word in text for word in _START_WORDS) or _CLOCK_OR_PIDS.search(text):
        places = {found.start() for found in _START.finditer(text) if found.start()}
    if text.startswith(_INTERRUPT) and len(text) > len(_INTERRUPT):
        places.add(len(_INTERRUPT))
    if "]" in text and _BAR.search(text):
        places |= {found.end() for found in _BAR_END.finditer(text)}
    if not places:
        return [text]
    cuts = [0, *sorted(places)[:PARTS_MAX], len(text)]
    rows = _rows(text, cuts)
    return [row for part in _rejoined(text, cuts) for row in _of_padded(part, rows)]


def _rejoined(text: str, cuts: list[int]) -> list[str]:
    """Return the parts, each prefix again with what it stands before.

    ``[default3]:[rank12]: …`` and ``[rank3]:[E1118 …`` are one statement.
    """
    joined = [""]
    for start, end in pairwise(cuts):
        part = text[start:end]
        if joined[-1] and not _only_prefix(joined[-1]):
            joined[-1] = joined[-1].rstrip()
            joined.append(part)
        else:
            joined[-1] += part
    return joined


_ONLY_PREFIX: Final = re.compile(r"\[[\w.:-]{1,80}\]: ?$")


def _only_prefix(part: str) -> bool:
    return len(part) < _PREFIX_MAX_CHARS and _ONLY_PREFIX.match(part) is not None


def _rows(text: str, cuts: list[int]) -> bool:
    """Return whether a line is a terminal's rows in one, each padded with blanks."""
    padded = sum(text[:cut].endswith(_PADDING) for cut in cuts[1:-1])
    return padded >= _PADDED_LEAST


def _of_padded(part: str, rows: bool) -> list[str]:
    """Return a part's rows; what stood at the margin keeps the indentation of code."""
    if not rows or _PADDING not in part:
        return [part]
    pieces = [piece.strip() for piece in part.split(_PADDING) if piece.strip()]
    above = ["", *pieces]
    return list(map(_indented, pieces, above)) or [part.rstrip()]


def _indented(piece: str, above: str) -> str:
    """Return a row as Python prints it: frames and their code are indented."""
    if piece.startswith('File "'):
        return f"  {piece}"
    return f"    {piece}" if above.startswith('File "') else piece


def unframed(text: str) -> str:
    """Return what stands inside a box, a table row or a ruler; the text itself else.

    The indentation inside is kept. A ruler without a title gives an empty text.
    """
    if not text:
        return text
    first, last = text[0], text[-1]
    if first in _SIDES and last in _SIDES and len(text) > 1:
        return text[1:-1].removeprefix(" ").rstrip()
    if first in _CORNERS and last in _CORNERS:
        return text.strip(_CORNERS).strip()
    if first in "|-" and _TABLE.match(text[:_TABLE_MAX_CHARS]):
        return ""
    if first == "|" and last == "|" and len(text) > 1 and text[1] == " ":
        text = text[2:-1].rstrip()
    if last == "]" and (found := _SCROLLED.search(text[-_MARGIN_CHARS:])):
        text = text[: len(text) - len(found[0])]
    return text.replace("\\|", "|") if "\\|" in text else text


def source_column(text: str) -> tuple[str, str]:
    """Return a message and the source line that rich puts at the right margin."""
    found = _RICH_SOURCE.search(text[-_MARGIN_CHARS:])
    return (text[: -len(found[0])].rstrip(), found[1]) if found else (text, "")


def has_source_column(text: str) -> bool:
    """Return whether a line ends with rich's column of source lines."""
    return _RICH_SOURCE.search(text[-_MARGIN_CHARS:]) is not None
