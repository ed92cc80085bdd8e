"""The course of a failed attempt as text: what happened when, around the first death.

It stands below the panel, which has the answer; here a person sees why the answer is
not the first line of a log. Ordered by time, never by size. Pure.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from dsup.core.exits import signal_name
from dsup.core.verdict import LOOKED_AT, Evidence, Verdict
from dsup.report.columns import Columns
from dsup.report.html.lives import Attempt, Role, roles
from dsup.report.rank_rows import ENDED, TOLD_TO_END
from dsup.report.sentences import clock, ranks

WIDTH: Final = 80
ROWS_MAX: Final = 16
BEFORE_S: Final = 300.0
"""What is older bears on nothing that a person reads here."""

_WHEN: Final = 10
_WHO: Final = 16
_AT_ONCE_S: Final = 0.01
_AFTER_S: Final = 86_400.0
_DELAY: Final = re.compile(r", [+-]\d{1,9}(?:\.\d{1,9})? s$")


class Row(NamedTuple):
    """One thing that happened.

    Attributes:
        at_s: CLOCK_REALTIME, seconds.
        until_s: when the last of several such things happened.
        who: a rank, ranks, or whose word it is.
        what: a few words.
    """

    at_s: float
    until_s: float
    who: str
    what: str


class _End(NamedTuple):
    """A rank's end, as far as several may have it in common."""

    role: str
    of: int | None
    how: str
    status: int | None


def course(attempt: Attempt, columns: Columns) -> tuple[str, ...]:
    """Return the lines of an attempt's course; none where no times are known.

    Args:
        attempt: it has a verdict.
        columns: what the stream can show.
    """
    verdict = attempt.verdict
    if verdict is None or not math.isfinite(verdict.at_s):
        return ()
    found = rows(attempt, verdict)
    if len(found) < 2:  # noqa: PLR2004 (one moment is no course)
        return ()
    zero = clock(verdict.at_s, 0.0, tenths=True)
    shown, hidden = found[:ROWS_MAX], len(found) - ROWS_MAX
    lines = [f" course   seconds from {zero} UTC"]
    lines += (_line(row, verdict.at_s, columns) for row in shown)
    if hidden > 0:
        lines.append(f"{'':{_WHEN}}and {hidden} more")
    return tuple(lines)


def rows(attempt: Attempt, verdict: Verdict) -> list[Row]:
    """Return what happened, in order; what happened alike to several ranks is one."""
    # Of what came in one millisecond a signal is the answer.
    found = [*_seen(verdict.evidence), *_ends(attempt), *_signals(attempt)]
    since_s = verdict.at_s - BEFORE_S
    until_s = verdict.at_s + _AFTER_S
    kept = (row for row in found if since_s <= row.at_s <= until_s)
    return sorted(kept, key=lambda row: round(row.at_s, 3))


def _seen(evidence: Iterable[Evidence]) -> Iterator[Row]:
    """Yield what bears on it; a wait status is told as the rank's end.

    What was looked at and proves nothing would read as a part of the story here.
    """
    for one in evidence:
        if one.text.startswith(LOOKED_AT):
            continue
        if one.at_s is not None and one.source not in {"status", "dsup"}:
            who = one.source if one.rank is None else f"rank {one.rank}"
            what = one.text if one.rank is None else f"{one.source}: {one.text}"
            yield Row(one.at_s, one.at_s, who, what)


def _signals(attempt: Attempt) -> Iterator[Row]:
    for sent in attempt.signals:
        what = f"{signal_name(sent.signum)} to {ranks(sent.ranks)}"
        yield Row(sent.at_s, sent.at_s, "dsup", what)


def _ends(attempt: Attempt) -> Iterator[Row]:
    """Yield the ends of ranks, one row for those that ended alike."""
    meant = roles(attempt)
    verdict = attempt.verdict
    asked = set(verdict.ended_by_dsup) if verdict else set()
    alike: dict[_End, list[tuple[float, int]]] = {}
    for life in attempt.ranks:
        if life.end_s is not None:
            role = meant[life.rank]
            how = _without_time(role) if role.kind == "victim" else ""
            by_dsup = role.kind == "first" and life.rank in asked
            kind = "first, by dsup" if by_dsup else role.kind
            end = _End(kind, role.of, how, life.status)
            alike.setdefault(end, []).append((life.end_s, life.rank))
    for end, ended in alike.items():
        times = [at_s for at_s, _ in ended]
        who = ranks(rank for _, rank in ended)
        yield Row(min(times), max(times), who, _words(end))


def _words(end: _End) -> str:
    status = "gone" if end.status is None else _status(end.status)
    match end.role:
        case "first":
            return f"ended first: {status}"
        case "first, by dsup":
            by_dsup = ENDED if end.status != 0 else TOLD_TO_END
            return f"where it began; {by_dsup}: {status}"
        case "victim":
            of = "" if end.of is None else f" of rank {end.of}"
            return f"victim{of}: {end.how or status}"
        case "ended":
            return f"{ENDED}: {status}"
        case "told":
            return f"{TOLD_TO_END}: {status}"
        case _:
            return status


def _status(status: int) -> str:
    return signal_name(-status) if status < 0 else f"exit {status}"


def _without_time(role: Role) -> str:
    """Return how a victim ended; the row itself tells when."""
    return _DELAY.sub("", role.how)


def _line(row: Row, zero_s: float, columns: Columns) -> str:
    # Adding zero makes no minus of a zero.
    when = f"{round(row.at_s - zero_s, 2) + 0.0:+.2f}"
    room = WIDTH - _WHEN - _WHO
    dots = columns.legible("…")
    later = row.until_s > row.at_s + _AT_ONCE_S
    until = f" {dots} {row.until_s - zero_s:+.2f}" if later else ""
    who = columns.fit(row.who, _WHO - 1, 1)[0]
    what = columns.fit(row.what, room - len(until), 1, raw=True)
    return f"{when:>{_WHEN - 2}}  {who:{_WHO}}{what[0] if what else ''}{until}"
