"""Time stamps at the start of log lines, in the styles that launchers and viewers use.

Times without a zone are read as UTC. A stamp without a year counts from 1972, a leap
year, one without a date from 1970: such times compare with each other only, until
``years.dated`` finds the year.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

YEARLESS: Final = 1972
DAY_S: Final = 86_400.0
_YEARLESS_S: Final = 63_072_000.0
DATED_S: Final = _YEARLESS_S + 366 * DAY_S
"""Times from here on have a year of their own."""

_CENTURY: Final = 2000
_SHORT: Final = 100
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MONTH: Final = "Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec"
_MONTHS: Final = _MONTH.split("|")
_CLOCK: Final = r"(?P<H>\d\d):(?P<M>\d\d):(?P<S>\d\d)(?:[.,](?P<f>\d{1,9}))?"

_DATED: Final = (
    r"(?P<y>\d{4})[-/](?P<m>\d\d)[-/](?P<d>\d\d)[T _-]"
    + _CLOCK
    + r" ?(?P<z>Z|UTC|[+-]\d\d:?\d\d)?"
)

_NAMED: Final = rf"(?P<b>{_MONTH}) {{1,2}}(?P<d>\d{{1,2}}) {_CLOCK}"

STAMPS: Final = tuple(
    re.compile(pattern)
    for pattern in (
        rf"\[{_DATED}\]:?(?: |$)?",
        rf"{_DATED}(?:[:,] | \| (?=\S)|[ \t]|:?$)",
        rf"\[(?:(?P<m>\d\d)/(?P<d>\d\d)/(?P<y>\d\d(?:\d\d)?) )?{_CLOCK}\](?: |$)",
        rf"{_CLOCK} (?=\S)",
        rf"(?P<m>\d\d)/(?P<d>\d\d) {_CLOCK} - ",
        rf"(?P<d>\d\d)-(?P<b>{_MONTH})-(?P<y>\d\d(?:\d\d)?) {_CLOCK} ",
        rf"\[?(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) {_NAMED} (?P<y>\d{{4}})\]?:? ?",
        rf"{_NAMED} ",
    )
)


_ANY: Final = re.compile(
    "|".join(re.sub(r"\(\?P<\w>", "(?:", style.pattern) for style in STAMPS)
)
"""Matches where one of them does: most lines have none."""


class Stamp(NamedTuple):
    """A time that a line tells.

    Attributes:
        at_s: seconds, see above.
        end: where the rest of the line begins.
        zoned: it tells its zone.
    """

    at_s: float
    end: int
    zoned: bool = False


def stamp(text: str) -> Stamp | None:
    """Return the stamp that a text begins with; None where it begins with none."""
    if not _ANY.match(text):
        return None
    for pattern in STAMPS:
        if found := pattern.match(text):
            return _stamp(found)
    return None


def glog(month: str, day: str, clock: str) -> float | None:
    """Return the time of a C++ logger's ``0325 20:57:27.620000``: no year.

    Args:
        month: one or two digits: some builds print no leading 0.
        day: two digits.
        clock: ``HH:MM:SS`` with or without a fraction.
    """
    hour, minute, rest = clock.split(":")
    second, _, fraction = rest.partition(".")
    numbers = (YEARLESS, int(month), int(day), int(hour), int(minute), int(second))
    return _seconds(numbers, fraction)


def is_yearless(at_s: float) -> bool:
    """Return whether a time has a day and no year."""
    return _YEARLESS_S <= at_s < DATED_S


def in_year_of(dated_s: float, at_s: float) -> float:
    """Return a time without a year in the year of another."""
    year = datetime.fromtimestamp(dated_s, tz=UTC).year
    moment = datetime.fromtimestamp(at_s, tz=UTC)
    try:
        return moment.replace(year=year).timestamp()
    except ValueError:  # the 29th of February
        return at_s


def _stamp(found: re.Match[str]) -> Stamp | None:
    fields = found.groupdict()
    month = fields.get("m")
    if name := fields.get("b"):
        month = str(_MONTHS.index(name) + 1)
    year = int(fields.get("y") or (YEARLESS if month else 1970))
    year += _CENTURY if year < _SHORT else 0
    date = (year, int(month or 1), int(fields.get("d") or 1))
    clock = int(fields["H"]), int(fields["M"]), int(fields["S"])
    at_s = _seconds((*date, *clock), fields["f"] or "")
    if at_s is None:
        return None
    zone = fields.get("z")
    return Stamp(at_s - _offset_s(zone or ""), found.end(), zone is not None)


def _seconds(numbers: tuple[int, ...], fraction: str) -> float | None:
    year, month, day, hour, minute, second = numbers
    try:
        moment = datetime(year, month, day, hour, minute, min(second, 59), tzinfo=UTC)
    except ValueError:
        return None
    return (moment - _EPOCH) / timedelta(seconds=1) + float(f"0.{fraction or 0}")


def _offset_s(zone: str) -> float:
    if zone[:1] not in {"+", "-"}:
        return 0.0
    digits = zone[1:].replace(":", "")
    seconds = 3600.0 * int(digits[:2]) + 60.0 * int(digits[2:4])
    return -seconds if zone[0] == "-" else seconds
