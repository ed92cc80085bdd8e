"""How a verdict on a log is put: who, what, and the lines that show it."""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from dsup.attribution.logged.places import Fact
from dsup.attribution.wording import TEXT_MAX_CHARS, one_line, sentence, subject
from dsup.core.verdict import Certainty, Evidence, Source, Verdict
from dsup.facts.logs.said import Collective, End, Error, LoggedAttempt, Stop

AROUND_S: Final = 60.0
_LOOKED_AT_CHARS: Final = 4096
_SIZE: Final = r"(\d{1,7}(?:\.\d{1,3})? [KMGT]i?B|0 bytes)"
_ASKED: Final = re.compile(rf"Tried to allocate {_SIZE}")
_FREE: Final = re.compile(rf"{_SIZE}(?: is)? free")

_LAST: Final = "Last error:"
"""NCCL's own reason follows it; what stands above is the same for all."""

_SOURCE: Final = re.compile(r"\[[^\]\s]{1,300}\.(?:cc|cpp|h|cu):\d{1,6}\] ?")
"""Where in its own code a library raised it, as gloo puts it before the words."""

NOBODY: Final = "A rank that the log does not name"


class Finding(NamedTuple):
    """What a rule has to say, before it is put into a verdict.

    Attributes:
        first: the statement that it rests on first; its time is the verdict's.
        text: the sentence, without its full stop.
        rest: other statements that are cited.
        signature: the same for the same failure; no ranks, times or pids in it.
        before_s: so long before the first statement it began, seconds.
    """

    rule: str
    cause: str
    ranks: tuple[int, ...]
    certainty: Certainty
    first: Fact | Stop
    text: str
    rest: tuple[Fact | Stop, ...] = ()
    status: int = 1
    signature: str = ""
    before_s: float = 0.0


def verdict(attempt: LoggedAttempt, found: Finding) -> Verdict:
    """Return a verdict that says what a rule found."""
    cited = (found.first, *found.rest)
    at_s = next((fact.at_s for fact in cited if fact.at_s is not None), None)
    at_s = _time(attempt, found) if at_s is None else at_s
    return Verdict(
        attempt.number,
        found.cause,
        tuple(sorted(set(found.ranks))),
        found.certainty,
        math.nan if at_s is None else at_s - found.before_s,
        sentence(found.text),
        found.rule,
        tuple(evidence(fact) for fact in _whole(attempt, cited)),
        status=found.status,
        signature=found.signature,
    )


def _whole(
    attempt: LoggedAttempt, cited: Iterable[Fact | Stop]
) -> Iterator[Fact | Stop]:
    """Yield what is cited, the exception itself where a line of its text was."""
    errors = {error.order: error for error in attempt.errors}
    for fact in cited:
        known = errors.get(fact.order) if isinstance(fact, Collective) else None
        yield fact if known is None else known


def _time(attempt: LoggedAttempt, found: Finding) -> float | None:
    """Return when it was, where no cited line tells.

    The end of a rank that it is about, as its launcher tells it; else the time of the
    stamped line before it, where another one follows within a minute.
    """
    place = getattr(found.first, "place", None)
    ranks: set[int | None] = set(found.ranks)
    ranks = ranks or {place.rank if place is not None else None}
    ends = (e.at_s for e in attempt.ends if e.place.rank in ranks and not e.by_launcher)
    told = min((at_s for at_s in ends if at_s is not None), default=None)
    if told is not None and None not in ranks:
        return told
    at = bisect_right(attempt.clock, (found.first.order, math.inf))
    around = attempt.clock[max(0, at - 1) : at + 1]
    close = len(around) > 1 and at and around[1][1] - around[0][1] <= AROUND_S
    return around[0][1] if close else None


def evidence(fact: Fact | Stop) -> Evidence:
    """Return a line of the log, with its place there."""
    text = fact.text
    if isinstance(fact, Error):
        text = exception(fact)
    source: Source = "launcher" if isinstance(fact, End | Stop) else "log"
    rank = None if isinstance(fact, Stop) else fact.place.rank
    return Evidence(
        source, one_line(text), rank, fact.at_s, fact.file, fact.number or None
    )


def who(ranks: Iterable[int], attempt: LoggedAttempt, many: int = 1) -> str:
    """Return ``Rank 2``, ``All 8 ranks``, or that the log names none.

    Args:
        ranks: global ranks; may be empty.
        attempt: the attempt they are of.
        many: how many processes said it, where no rank is known.
    """
    known = set(ranks)
    if known:
        return subject(known, attempt.world_size)
    return f"{many} ranks that the log does not name" if many > 1 else NOBODY


def message(error: Error) -> str:
    """Return the telling part of an exception's text, one line."""
    _, told = _telling(error)
    lines = [line.strip() for line in told.splitlines() if line.strip()]
    if not lines:
        return ""
    telling = " ".join(lines[:2]) if lines[0].endswith(":") else lines[0]
    if _LAST in lines[:-1]:
        telling = lines[lines.index(_LAST) + 1]
    return one_line(_SOURCE.sub("", telling, count=1), TEXT_MAX_CHARS)


def memory_asked(error: Error) -> str:
    """Return ``it asked for 2.00 GiB more, 0.31 GiB were free``; else its message."""
    told = _telling(error)[1][:_LOOKED_AT_CHARS]
    asked, free = _ASKED.search(told), _FREE.search(told)
    if asked is None:
        return message(error)
    left = f", {free[1]} were free" if free is not None else ""
    return f"it asked for {asked[1]} more{left}"


def exception(error: Error) -> str:
    """Return ``ValueError: batch 812 has no labels (train.py:203)``."""
    text, where = message(error).rstrip("."), _place(error)
    kind = one_line(_telling(error)[0], 80)
    shown = ": ".join(part for part in (kind, text) if part)
    shown = shown or "an exception whose text the log lacks"
    return f"{shown} ({one_line(where, 60)})" if where else shown


def _telling(error: Error) -> tuple[str, str]:
    """Return type and text; where the log was cut, those of what was being handled."""
    if error.type or error.text or not error.causes:
        return error.type, error.text
    return error.causes[0]


def _place(error: Error) -> str:
    """Return ``train.py:203`` of ``/app/train.py:203 in main``."""
    return error.frame.partition(" in ")[0].rpartition("/")[2]
