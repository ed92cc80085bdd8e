"""The time of the wall in a kernel log, in whatever way it was printed."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

_YEAR, _MONTH, _DAY = 372 * 86_400, 31 * 86_400, 86_400
_NUMBERS: Final = re.compile(
    r"(?P<h>\d{1,2}):(?P<m>\d\d)(?::(?P<s>\d\d)(?:[.,](?P<f>\d{1,6}))?)?"
)
_MONTHS: Final = "jan feb mar apr may jun jul aug sep oct nov dec".split()  # noqa: SIM905
_ISO_DATE: Final = re.compile(r"\D{0,20}(\d{4})[-/.](\d\d)[-/.](\d\d)")
_CLOSE: Final = re.compile(
    r"(?P<date>\d{8})[T ,-]{0,2}(?P<h>\d\d):?(?P<m>\d\d):?(?P<s>\d\d)(?=\D|$)"
)
"""Date and clock with nothing between their numbers."""

_NAMED: Final = re.compile(
    r"(?P<day>\d{1,2})[-/](?P<month>[A-Z][a-z]{2})[-/](?P<year>\d{4}).(?P<rest>.{0,60})"
)
_UNORDERED: Final = re.compile(r"(\d{1,2})[-/.](\d{1,2})(?:[-/.](\d{2,4}))?\b")
"""Nobody tells whether the day comes first, or the month."""
_ZONE: Final = re.compile(r" ?(?P<utc>Z|UTC|GMT)\b|(?P<h>[+-]\d\d):?(?P<m>\d\d)\b")
_EPOCH: Final = re.compile(r"(\d{10})(?:\.(\d{1,9}))?")
_AFTERNOON: Final = re.compile(r"\s(?P<half>[AP])M\b")
_NOON_H: Final = 12


def wall_iso(stamp: str) -> str | None:
    """Return a date and time as ISO 8601; None where the log does not tell both.

    Args:
        stamp: as the log shows it. A year that it does not tell is not guessed, and
            its zone is told only where it is one of numbers, or UTC by name.
    """
    if epoch := _EPOCH.fullmatch(stamp):
        since = datetime.fromtimestamp(int(epoch[1]), UTC)
        return since.replace(microsecond=_micros(epoch[2])).isoformat()
    stamp = _apart(stamp)
    clock = _NUMBERS.search(stamp)
    if not clock or _UNORDERED.match(stamp):
        return None
    before, after = stamp[: clock.start()], stamp[clock.end() :]
    day, month, year = _date(before, after)
    try:
        when = datetime(  # noqa: DTZ001 (its zone is told apart, or not at all)
            year,
            month,
            day,
            _hour(int(clock["h"]), after),
            int(clock["m"]),
            int(clock["s"] or 0),
        )
    except ValueError:
        return None
    fraction = f".{clock['f']}" if clock["f"] else ""
    return f"{when.isoformat()}{fraction}{_zone(after)}"


def wall_us(stamp: str) -> int | None:
    """Return a time for comparison with others of the same log; None if it is none.

    A month has 31 days here: what is compared is minutes apart. Names of months in
    other languages count as no month.
    """
    if epoch := _EPOCH.fullmatch(stamp):
        return int(epoch[1]) * 1_000_000 + _micros(epoch[2])
    stamp = _apart(stamp)
    clock = _NUMBERS.search(stamp)
    if not clock:
        return None
    seconds = int(clock["h"]) * 3600 + int(clock["m"]) * 60 + int(clock["s"] or 0)
    day, month, year = _date(stamp[: clock.start()], stamp[clock.end() :])
    whole = year * _YEAR + month * _MONTH + day * _DAY + seconds
    return whole * 1_000_000 + _micros(clock["f"])


def _micros(fraction: str | None) -> int:
    return int((fraction or "0")[:6].ljust(6, "0"))


def _apart(stamp: str) -> str:
    """Return a time as ISO 8601 has it, where its parts stand closer together."""
    if named := _NAMED.match(stamp):
        month = _named_month(named["month"]) or 0
        return f"{named['year']}-{month:02}-{int(named['day']):02}T{named['rest']}"
    found = _CLOSE.match(stamp)
    if not found:
        return stamp
    day = f"{found['date'][:4]}-{found['date'][4:6]}-{found['date'][6:]}"
    clock = f"{found['h']}:{found['m']}:{found['s']}"
    return f"{day}T{clock}{stamp[found.end() :]}"


def _date(before: str, after: str) -> tuple[int, int, int]:
    numbers = [int(n) for n in re.findall(r"\d{1,4}", before)]
    years = [int(n) for n in re.findall(r"(?<!\d)\d{4}(?!\d)", after)]
    iso = _ISO_DATE.match(before)
    if iso:
        return int(iso[3]), int(iso[2]), int(iso[1])
    if unordered := _UNORDERED.match(before):
        return int(unordered[1]), int(unordered[2]), int(unordered[3] or 0)
    month = _named_month(before) or 0
    return (numbers[-1] if numbers else 0), month, (years[0] if years else 0)


def _named_month(text: str) -> int | None:
    words = re.findall(r"[a-z]{3}", text.lower())
    return next((_MONTHS.index(word) + 1 for word in words if word in _MONTHS), None)


def _hour(hour: int, after: str) -> int:
    half = _AFTERNOON.search(after)
    if not half:
        return hour
    return hour % _NOON_H + (_NOON_H if half["half"] == "P" else 0)


def _zone(after: str) -> str:
    found = _ZONE.search(after)
    if not found:
        return ""
    return "Z" if found["utc"] else f"{found['h']}:{found['m']}"
