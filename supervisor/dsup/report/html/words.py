"""Numbers, times and texts as the page shows them. Pure.

A number and its unit are joined by a no-break space; ids, pids and steps stay plain,
so that a search finds them.
"""

from __future__ import annotations

import math
import re
import time
from typing import Final

from markupsafe import Markup

from dsup.core.exits import SIGNALLED, signal_name
from dsup.core.printable import printable

NBSP: Final = "\N{NO-BREAK SPACE}"
MINUS: Final = "\N{MINUS SIGN}"
DASH: Final = "\N{EN DASH}"
"""Where there is nothing to tell."""

CAP: Final = 4000
"""So many characters of one recorded text are shown; what follows is counted."""

YEAR_9999_S: Final = 253_402_300_799.0

_GIB_KB: Final = 1 << 20
_MINUTE_S: Final = 60
_HOUR_S: Final = 3600
_DAY_S: Final = 86400
_CITED: Final = re.compile(r"\b(E\d{1,3})\b")
_BREAKS: Final = ",/"

_WIDTHS: Final = {
    0.25: "ijl'|",
    0.3: "ftrI!.,:;/\\[]() -·" + NBSP,
    0.52: "ckszxvyJ",
    0.57: "0123456789abdeghnopqu?$#_L",
    0.62: 'FTZ~+<>="*^' + MINUS,
    0.68: "ABEKPSVXY&",
    0.74: "CDHNRUw",
    0.8: "GOQ",
    0.86: "mM",
    1.0: "W@%…—→",
}
_WIDTH_OF: Final = {c: width for width, letters in _WIDTHS.items() for c in letters}
_WIDE_EM: Final = 1.05
_BOLD: Final = 1.07


def shown(value: object) -> object:
    r"""Return what the template may write: no text moves the reader's eyes or cursor.

    Control characters and those that turn the direction of writing become ``\x1b``
    and ``\u202e``. Every expression of the template goes through here.
    """
    if isinstance(value, Markup) or not isinstance(value, str):
        return value
    return NBSP.join(printable(part) for part in value.split(NBSP))


def capped(text: str, most: int = CAP) -> str:
    """Return a text of at most so many characters, and how many are left out."""
    if len(text) <= most:
        return text
    return f"{text[:most]}… ({len(text) - most} more characters)"


def pieces(text: str) -> list[str]:
    """Return a text cut where a line may break: after commas and slashes."""
    found, start = [], 0
    for at, letter in enumerate(text, 1):
        if letter in _BREAKS:
            found.append(text[start:at])
            start = at
    return [*found, text[start:]] if start < len(text) or not found else found


def cites(text: str) -> list[tuple[str, bool]]:
    """Return a text in parts, each with whether it is the number of an evidence."""
    parts = _CITED.split(text)
    return [(part, bool(number % 2)) for number, part in enumerate(parts) if part]


def text_width(text: str, size: float, *, bold: bool = False) -> float:
    """Return about how wide a text is, rather too wide than too narrow.

    Args:
        text: one line.
        size: of the font, px.
        bold: bold letters are wider.
    """
    em = sum(_WIDTH_OF.get(c, 0.57 if c.isascii() else _WIDE_EM) for c in text)
    return em * size * (_BOLD if bold else 1.0)


def fitted(text: str, size: float, width: float, *, bold: bool = False) -> str:
    """Return as much of a text as fits, the cut marked by ``…``."""
    if text_width(text, size, bold=bold) <= width:
        return text
    low = 0
    high = min(len(text), int(width) + 1)
    while low < high:
        middle = (low + high + 1) // 2
        fits = text_width(f"{text[:middle]}…", size, bold=bold) <= width
        low, high = (middle, high) if fits else (low, middle - 1)
    return f"{text[:low].rstrip()}…"


def clock(wall_s: float, digits: int = 0) -> str:
    """Return the time of day in UTC.

    Args:
        wall_s: CLOCK_REALTIME, seconds.
        digits: of the second's fraction, cut off and not rounded.
    """
    stamp = time.strftime("%H:%M:%S", time.gmtime(_sane(wall_s) + 5e-7))
    if not digits:
        return stamp
    # A time of today as a float is exact to a quarter of a microsecond.
    fraction = math.floor(((_sane(wall_s) + 5e-7) % 1) * 10**digits)
    return f"{stamp}.{min(fraction, 10**digits - 1):0{digits}d}"


def date(wall_s: float) -> str:
    """Return the day in UTC, ISO."""
    return time.strftime("%Y-%m-%d", time.gmtime(_sane(wall_s)))


def iso(wall_s: float) -> str:
    """Return a time for a program that shows it in another time zone."""
    return f"{date(wall_s)}T{clock(wall_s, 3)}Z"


def period(first_s: float, last_s: float) -> str:
    """Return ``2026-11-28, 14:00 to 14:39``."""
    first, last = clock(first_s)[:5], clock(last_s)[:5]
    if last_s - first_s < _MINUTE_S:
        first, last = clock(first_s), clock(last_s)
    if date(first_s) == date(last_s):
        same = first == last
        return f"{date(first_s)}, {first if same else f'{first} to {last}'}"
    return f"{date(first_s)} {first} to {date(last_s)} {last}"


def duration(seconds: float) -> str:
    """Return ``39 min 9 s``, ``1.58 s`` or ``3 ms``: two units at most."""
    if not math.isfinite(seconds):
        return "?"
    if seconds < 1:
        return f"{max(0, round(seconds * 1000))}{NBSP}ms"
    if seconds < 10:  # noqa: PLR2004 (three digits)
        return f"{_short(seconds, 2)}{NBSP}s"
    whole = round(seconds)
    for size, unit, below, under in (
        (_DAY_S, "d", _HOUR_S, "h"),
        (_HOUR_S, "h", _MINUTE_S, "min"),
        (_MINUTE_S, "min", 1, "s"),
    ):
        if whole >= size:
            rest = whole % size // below
            more = f" {rest}{NBSP}{under}" if rest else ""
            return f"{whole // size}{NBSP}{unit}{more}"
    return f"{whole}{NBSP}s"


def later(seconds: float) -> str:
    """Return ``+1.58 s``, ``-9 s``, ``0 s``: a distance from the death."""
    if not math.isfinite(seconds):
        return "?"
    if abs(seconds) < 0.0005:  # noqa: PLR2004 (nothing a report tells is that exact)
        return f"0{NBSP}s"
    sign = "+" if seconds > 0 else MINUS
    size = abs(seconds)
    if size < 0.1:  # noqa: PLR2004
        return f"{sign}{_short(size, 3)}{NBSP}s"
    return f"{sign}{_short(size, 2)}{NBSP}s" if size < 1 else f"{sign}{duration(size)}"


def between(first_s: float, last_s: float) -> str:
    """Return ``+1.9 to +2.4 s``: two distances from the death."""
    first, last = later(first_s), later(last_s)
    if first == last:
        return first
    number, unit = first.split(NBSP)[:2]
    same = first.count(NBSP) == last.count(NBSP) == 1 and last.endswith(f"{NBSP}{unit}")
    return f"{number if same else first} to {last}"


def size(kb: float) -> str:
    """Return ``161 GiB`` for KiB: three digits."""
    gib = kb / _GIB_KB
    if abs(gib) < 0.1:  # noqa: PLR2004
        return f"{_three(kb / 1024)}{NBSP}MiB"
    return f"{_three(gib)}{NBSP}GiB"


def ended(status: int | None) -> str:
    """Return ``exit 1`` or ``SIGKILL`` for a wait status; empty for an unknown one."""
    if status is None:
        return ""
    return signal_name(-status) if status < 0 else f"exit {status}"


def code_words(code: int) -> str:
    """Return what an exit code is made of; empty where it is nothing but a number."""
    signum = code - SIGNALLED
    return f"{SIGNALLED} + {signal_name(signum)}" if 0 < signum < 32 else ""  # noqa: PLR2004


def count(number: int, one: str) -> str:
    """Return ``1 rank`` or ``8 ranks``."""
    return f"{number:,}{NBSP}{one}{'' if number == 1 else 's'}"


def _three(value: float) -> str:
    size = abs(value)
    return _short(value, 0 if size >= 99.95 else 1 if size >= 9.995 else 2)  # noqa: PLR2004


def _short(value: float, digits: int) -> str:
    text = f"{value:.{digits}f}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return text.replace("-", MINUS)


def _sane(wall_s: float) -> float:
    return min(max(wall_s, 0.0), YEAR_9999_S) if math.isfinite(wall_s) else 0.0
