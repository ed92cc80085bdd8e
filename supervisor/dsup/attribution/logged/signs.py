"""What each statement of a log amounts to, before anybody asks which came first.

A sign is *own* where no other rank's end leads to such words: an exception that has
nothing to do with communication, a signal that nobody else's death sends, a device's
error, a full disk. Everything else is a victim's.

The order of lines tells what came first, and time stamps only where all signs have
one: streams are out of order, and launchers round to whole seconds.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Literal, NamedTuple, TypeAlias

from dsup.attribution.logged.causes import (
    CRASH_SIGNALS,
    cause_of_complaint,
    cause_of_error,
    cause_of_status,
    cause_of_words,
    is_interrupt,
    is_relayed,
    lost_by,
)
from dsup.attribution.logged.chains import unchained
from dsup.attribution.logged.own_ends import names_of, own_ends
from dsup.attribution.logged.places import Fact, contradict, everything, settled
from dsup.attribution.logged.survived import (
    may_be_late,
    others_went_on,
    outlived,
    succeeded,
)
from dsup.attribution.wording import alike
from dsup.core.exits import SIGKILL, SIGNALLED
from dsup.facts.logs.said import Collective, Complaint, End, Error, LoggedAttempt

Sort: TypeAlias = Literal["exception", "signal", "abort", "words"]
"""An uncaught exception; a deadly signal; SIGABRT; words that are no traceback."""

SIGABRT: Final = 6
SECOND_S: Final = 1.0
"""Launchers round their time stamps down to a whole second."""

ABOUT_S: Final = 60.0
FAR_LINES: Final = 10_000

LOST_KINDS: Final = frozenset({"remote", "store", "completion"})
_NOT_OWN: Final = frozenset({*LOST_KINDS, "node"})
_UNCAUGHT: Final = "terminate called"
"""The C++ run time's last words: of a watchdog's own exception, as a rule."""

_LAST_WORDS: Final = frozenset({"glibc", "crash"})


class Sign(NamedTuple):
    """One statement that bears on the cause.

    Attributes:
        rank: its global rank; None where the log cannot tell.
        status: exit code or minus the signal, where it tells one; else 1.
    """

    sort: Sort
    cause: str
    rank: int | None
    fact: Fact
    status: int = 1

    @property
    def at_s(self) -> float | None:
        """Its own time stamp, seconds."""
        return self.fact.at_s

    @property
    def order(self) -> int:
        """Its place in all that was read."""
        return self.fact.order


class Reading(NamedTuple):
    """An attempt, and what its statements amount to: what rules look at.

    Attributes:
        attempt: its facts bear global ranks wherever the log tells them.
        signs: the own ones, the first one first.
        leaders: the first, and those like it that no time tells apart from it.
        lost: statements of victims, in the order of the log.
        ends: failures that a launcher saw and had not brought about itself.
    """

    attempt: LoggedAttempt
    signs: tuple[Sign, ...] = ()
    leaders: tuple[Sign, ...] = ()
    lost: tuple[Fact, ...] = ()
    ends: tuple[End, ...] = ()

    @property
    def timeouts(self) -> tuple[Collective, ...]:
        """The watchdogs' time-outs."""
        found = (f for f in self.lost if isinstance(f, Collective))
        return tuple(f for f in found if f.kind == "timeout")


def read(attempt: LoggedAttempt) -> Reading:
    """Return what the statements of an attempt amount to."""
    known = settled(attempt)
    known = known._replace(errors=tuple(map(unchained, known.errors)))
    lost = _lost(known)
    ends = tuple(own_ends(known))
    found = (
        *_exceptions(known, victims=bool(lost) or _explained(known)),
        *_signals(known, ends),
        *_complaints(known, victims=bool(lost)),
        *_devices(known),
    )
    live = _live(known, found, lost)
    ordered = _ordered([s for s in live if not _is_faint(known, s.fact)] or live)
    first = _like(ordered[0], ordered, known) if ordered else ()
    return Reading(known, ordered, first, lost, ends)


def _live(
    attempt: LoggedAttempt, found: Sequence[Sign], lost: Sequence[Fact]
) -> Sequence[Sign]:
    """Return the signs that nobody outlived; else those that may be printed early.

    A launcher's own word of how a worker ended is no guess: what was outlived counts
    beside it only where it may be of the same worker.
    """
    if succeeded(attempt):
        return ()
    live = [sign for sign in found if not outlived(attempt, sign.fact)]
    if live:
        return [sign for sign in live if not _may_be_caught(attempt, sign)] or live
    return [sign for sign in found if may_be_late(attempt, sign.fact, lost)]


def _may_be_caught(attempt: LoggedAttempt, sign: Sign) -> bool:
    """Return whether a rank may have gone on after it, as far as others tell.

    A logger told of it, so that somebody had caught it; or the others trained on. But
    no launcher tells that its process failed.
    """
    fact = sign.fact
    logged = isinstance(fact, Error) and fact.logged
    if not logged and not others_went_on(attempt, fact):
        return False
    return not any(_may_be(fact, end) for end in own_ends(attempt))


def _explained(attempt: LoggedAttempt) -> bool:
    """Return whether more is told than by frames whose exception is cut off.

    A library says that ranks called different collectives; or somebody stopped the job.
    """
    differ = any(one.kind == "mismatch" for one in attempt.collectives)
    return differ or bool(attempt.stops)


def how_lost(fact: Fact) -> str:
    """Return what a victim suffered, in a few words."""
    if isinstance(fact, Collective):
        return "collective timed out" if fact.kind == "timeout" else "barrier timed out"
    kind = fact.type if isinstance(fact, Error) else ""
    name = fact.kind if isinstance(fact, Complaint) else ""
    known = {"store": "store lost", "completion": "completion error"}
    return known.get(name) or lost_by(kind, fact.text) or "connection lost"


def _lost(attempt: LoggedAttempt) -> tuple[Fact, ...]:
    errors = (e for e in attempt.errors if lost_by(e.type, e.text))
    complaints = (c for c in attempt.complaints if c.kind in LOST_KINDS)
    waits = (c for c in attempt.collectives if c.kind in {"timeout", "barrier"})
    told: tuple[Fact, ...] = (*errors, *complaints, *waits)
    lost = (fact for fact in told if not outlived(attempt, fact))
    return tuple(sorted(lost, key=lambda fact: fact.order))


def _exceptions(attempt: LoggedAttempt, *, victims: bool) -> Iterator[Sign]:
    for error in attempt.errors:
        if lost_by(error.type, error.text):
            continue
        if is_interrupt(error) or is_relayed(error):
            continue
        # Frames alone may be those of a rank that waited for the others.
        if victims and _is_faint(attempt, error):
            continue
        cause = cause_of_error(error)
        # The driver of a Ray job raises what ended the process of another one.
        sort: Sort = "words" if cause == "killed" else "exception"
        yield Sign(sort, cause, error.place.rank, error)


def _signals(attempt: LoggedAttempt, ends: Iterable[End]) -> Iterator[Sign]:
    reasons = [f for f in everything(attempt) if _explains_abort(f)]
    told: set[tuple[str, int]] = set()
    for end in ends:
        status = deadly(end.status)
        names = names_of(end)
        if status is None or told.intersection(names):
            continue
        told.update(names)
        if status == -SIGABRT and any(_may_be(f, end) for f in reasons):
            continue
        sort: Sort = "abort" if status == -SIGABRT else "signal"
        yield Sign(sort, cause_of_status(status), end.place.rank, end, status)


def deadly(status: int | None) -> int | None:
    """Return minus the signal that ended a worker for good; None for anything else.

    A shell, a container and ``mpirun`` tell a signal as 128 plus its number.
    """
    if status is None:
        return None
    number = -status if status < 0 else status - SIGNALLED
    is_deadly = number in CRASH_SIGNALS or number in {SIGKILL, SIGABRT}
    return -number if is_deadly else None


def _explains_abort(fact: Fact) -> bool:
    """Return whether an abort may follow from this.

    A watchdog that gives up after a time-out or a CUDA error aborts its process: what
    it said is the reason, the abort is not.
    """
    if isinstance(fact, End):
        return False
    return not isinstance(fact, Complaint) or fact.kind not in _LAST_WORDS


def _may_be(fact: Fact, end: End) -> bool:
    return not contradict(fact.place, end.place)


def _complaints(attempt: LoggedAttempt, *, victims: bool) -> Iterator[Sign]:
    for complaint in attempt.complaints:
        cause = cause_of_complaint(complaint)
        if victims and _is_faint(attempt, complaint):
            continue
        if complaint.kind not in _NOT_OWN and cause:
            status = -complaint.signum if complaint.signum else 1
            yield Sign("words", cause, complaint.place.rank, complaint, status)


def _devices(attempt: LoggedAttempt) -> Iterator[Sign]:
    for one in attempt.collectives:
        if one.kind == "device_error":
            cause = cause_of_words(one.text) or "cuda_error"
            yield Sign("words", cause, one.place.rank, one)


def _is_faint(attempt: LoggedAttempt, fact: Fact) -> bool:
    """Return whether a sign counts only where nothing else is told.

    Frames without the exception's own line; the C++ run time's last words; a crash
    without its signal; a loss that is no number, which ends nothing by itself; a port
    of the network that came back, as steps went on after it.
    """
    if isinstance(fact, Error):
        own = any(not lost_by(kind, text) for kind, text in fact.causes)
        return not (fact.type or own or cause_of_words(fact.text))
    if not isinstance(fact, Complaint):
        return False
    if fact.kind == "nic":
        return any(
            one.order > fact.order and one.step is not None
            for one in attempt.progress.values()
        )
    last_words = fact.text.lstrip().startswith(_UNCAUGHT)
    unsignalled = fact.kind == "crash" and fact.signum is None
    return last_words or unsignalled or fact.kind == "nan"


def _ordered(found: Sequence[Sign]) -> tuple[Sign, ...]:
    stamped = all(sign.at_s is not None for sign in found)

    def key(sign: Sign) -> tuple[int, int]:
        second = math.floor(sign.at_s) if stamped and sign.at_s is not None else 0
        return second, sign.order

    return tuple(sorted(found, key=key))


def _like(
    first: Sign, known: Iterable[Sign], attempt: LoggedAttempt
) -> tuple[Sign, ...]:
    """Return the signs of one sort, cause and text, as far as no time tells them apart.

    Window: 1 s, what launchers round to. A line without a stamp has the time of the
    stamped one before it, which may be the last one for long: 60 s there; and lines
    that stand 10 000 or more behind the last of the same came later.
    """
    key = _key(first)
    same: list[Sign] = []
    for sign in known:
        if _key(sign) != key or _later(sign, first, attempt):
            continue
        if same and _far(same[-1].fact, sign.fact):
            break
        same.append(sign)
    by_rank = {(s.rank, s.order if s.rank is None else 0): s for s in reversed(same)}
    return tuple(reversed(by_rank.values()))


def _key(sign: Sign) -> tuple[str, str, str]:
    fact = sign.fact
    text = alike(fact.text) if isinstance(fact, Error) else str(sign.status)
    return sign.sort, sign.cause, text


def _later(sign: Sign, first: Sign, attempt: LoggedAttempt) -> bool:
    if sign.at_s is not None and first.at_s is not None:
        return sign.at_s - first.at_s > SECOND_S
    at_s, first_s = _about(sign, attempt), _about(first, attempt)
    return at_s is not None and first_s is not None and at_s - first_s > ABOUT_S


def _about(sign: Sign, attempt: LoggedAttempt) -> float | None:
    """Return a sign's time, or that of the stamped line before it."""
    if sign.at_s is not None:
        return sign.at_s
    at = bisect_right(attempt.clock, (sign.order, math.inf))
    return attempt.clock[at - 1][1] if at else None


def _far(one: Fact, other: Fact) -> bool:
    return one.file == other.file and other.number - one.number > FAR_LINES
