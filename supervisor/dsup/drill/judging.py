"""Whether a scenario went as it must: pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from dsup.core import events as ev
from dsup.drill.scenarios import Expected

_SURE: Final = ("proven", "likely", "guess", "unknown")


class Word(NamedTuple):
    """What a verdict says, as far as a drill compares it."""

    cause: str
    ranks: tuple[int, ...]
    certainty: str
    summary: str = ""


class Times(NamedTuple):
    """How long it took, seconds; None where there was no such moment.

    Attributes:
        noticed: from the fault until dsup saw it.
        gone: from then until nothing of the attempt was left.
        back: from then until the first step of the next one.
    """

    noticed: float | None = None
    gone: float | None = None
    back: float | None = None


class Seen(NamedTuple):
    """What came of a scenario.

    Attributes:
        word: of the verdict; None if there was none.
        code: exit code of the run that had to end well.
        newest: step of the newest whole checkpoint before the fault.
        resumed: step that training went on from; None if it did not.
        left: what the runs left behind, in words.
    """

    word: Word | None
    code: int
    newest: int
    resumed: int | None
    times: Times = Times()
    left: tuple[str, ...] = ()


def misses(expected: Expected, seen: Seen) -> tuple[str, ...]:
    """Return all that went another way than it must, in words."""
    return (*_of_word(expected, seen.word), *_of_restart(expected, seen), *seen.left)


def _of_word(expected: Expected, word: Word | None) -> Iterator[str]:
    if word is None:
        yield "there is no verdict"
        return
    if word.cause != expected.cause:
        yield f"the cause is {word.cause}, not {expected.cause}"
    wanted = () if expected.rank is None else (expected.rank,)
    if word.ranks != wanted:
        yield f"the verdict names {named(word.ranks)}, not {named(wanted)}"
    if _SURE.index(word.certainty) > _SURE.index(expected.certainty):
        yield f"the verdict is {word.certainty}, not {expected.certainty}"


def _of_restart(expected: Expected, seen: Seen) -> Iterator[str]:
    if seen.code:
        yield f"the restarted job ended with exit code {seen.code}, not 0"
    if seen.resumed is None:
        yield "training did not go on"
    elif expected.resumes == "newest" and seen.resumed < seen.newest:
        yield f"training went on from step {seen.resumed}, not from {seen.newest}"
    elif expected.resumes == "before" and not 0 < seen.resumed < seen.newest:
        yield (
            f"training went on from step {seen.resumed}, not from the checkpoint "
            f"before {seen.newest}"
        )


def named(ranks: tuple[int, ...]) -> str:
    """Return ``rank 1``, ``ranks 0, 2`` or ``no rank``."""
    if not ranks:
        return "no rank"
    return f"rank{'s' if ranks[1:] else ''} {', '.join(map(str, ranks))}"


def times(
    events: Iterable[ev.Event], attempt: int, fault_s: float, first_s: float | None
) -> Times:
    """Return how long an attempt's end took.

    Args:
        events: of the journal.
        attempt: the one that was harmed.
        fault_s: when.
        first_s: when the next one made its first step; None if it did not.
    """
    noticed_s = gone_s = None
    for event in events:
        if getattr(event, "attempt", None) != attempt or event.at_s < fault_s:
            continue
        if isinstance(event, ev.RankExited | ev.HangSuspected | ev.HangConfirmed):
            noticed_s = event.at_s if noticed_s is None else noticed_s
        elif isinstance(event, ev.GroupEmpty) and gone_s is None:
            gone_s = event.at_s
    return Times(
        between(fault_s, noticed_s),
        between(noticed_s, gone_s),
        between(gone_s, first_s),
    )


def between(begin_s: float | None, end_s: float | None) -> float | None:
    """Return the time from one moment to another; None if one is unknown."""
    return None if begin_s is None or end_s is None else max(0.0, end_s - begin_s)
