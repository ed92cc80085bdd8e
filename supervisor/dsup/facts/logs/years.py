"""Times of lines whose stamps lack the year or the day."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

from dsup.facts.logs.line import LogLine
from dsup.facts.logs.sniffed import dated_in
from dsup.facts.logs.stamps import DATED_S, DAY_S, in_year_of, is_yearless


def dated(lines: Iterable[LogLine]) -> Iterator[LogLine]:
    """Yield lines with the year that another line of the attempt tells.

    Clocks without a date go on growing over midnight. Where no line tells the year the
    times stay as they are.
    """
    found = list(lines)
    year = _year(found)
    last: dict[str, float] = {}
    for line in found:
        at_s = line.at_s
        if at_s is None:
            yield line
        elif at_s < DAY_S:
            at_s = last[line.file] = _after(last.get(line.file), at_s)
            yield line._replace(at_s=at_s)
        elif year is not None and is_yearless(at_s):
            yield line._replace(at_s=in_year_of(year, at_s))
        else:
            yield line


def _after(last: float | None, at_s: float) -> float:
    if last is None:
        return at_s
    days = last // DAY_S
    if at_s + days * DAY_S < last - DAY_S / 2:
        days += 1
    return at_s + days * DAY_S


def _year(lines: list[LogLine]) -> float | None:
    for line in lines:
        if line.at_s is not None and line.at_s >= DATED_S:
            return line.at_s
        if (year := dated_in(line.text)) is not None:
            return datetime(year, 7, 1, tzinfo=UTC).timestamp()
    return None
