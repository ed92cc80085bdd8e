"""Attempts beside each other: what is the same. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from dsup.core.verdict import Verdict
from dsup.report.html import growth
from dsup.report.html.lives import Attempt, began_s, named
from dsup.report.html.values import Story
from dsup.report.html.words import DASH, capped, duration, ended, size
from dsup.report.sentences import spans

COMPARED_MAX: Final = 4

_ALIKE: Final = 0.1


class Compared(NamedTuple):
    """One thing in all attempts that are compared.

    Attributes:
        alike: ``same`` or ``different``; empty where that says nothing.
    """

    name: str
    values: tuple[str, ...]
    alike: str


def compared(story: Story) -> tuple[list[int], list[Compared]]:
    """Return the attempts that are compared, and what of them is the same."""
    verdicts = {one.verdict.attempt: one.verdict for one in story.told}
    if len(verdicts) < 2:  # noqa: PLR2004 (nothing to compare with)
        return [], []
    numbers = sorted(verdicts)[-COMPARED_MAX:]
    some = [verdicts[number] for number in numbers]
    known = {attempt.number: attempt for attempt in story.attempts}
    lives = [known.get(number) for number in numbers]
    rows = [
        _same("cause", [v.cause for v in some]),
        _same("first rank", [spans(v.first_ranks) or "none" for v in some]),
        _signature(some),
        _same("exit of the first", [ended(v.status) for v in some]),
        _row("lived", [_lived(attempt) for attempt in lives]),
        _same("last step", [_last_step(a) for a in lives]),
        _row("new steps", [_new_steps(a) for a in lives]),
        *_memory(lives),
    ]
    return numbers, [row for row in rows if any(v and v != DASH for v in row.values)]


def _same(name: str, values: Sequence[str]) -> Compared:
    alike = "same" if len(set(values)) == 1 else "different"
    return Compared(name, tuple(values), alike)


def _row(name: str, values: Sequence[str]) -> Compared:
    return Compared(name, tuple(values), "")


def _signature(some: Sequence[Verdict]) -> Compared:
    values = [capped(v.signature or DASH, 160) for v in some]
    row = _same("signature", [v.signature for v in some])
    return row._replace(values=tuple(values))


def _lived(attempt: Attempt | None) -> str:
    died_s = began_s(attempt) if attempt else None
    if attempt is None or died_s is None:
        return DASH
    return duration(max(0.0, died_s - attempt.start_s))


def _last_step(attempt: Attempt | None) -> str:
    return str(attempt.stepped[1][1]) if attempt and attempt.stepped else DASH


def _new_steps(attempt: Attempt | None) -> str:
    if attempt is None or not attempt.stepped:
        return DASH
    (_, first), (_, last) = attempt.stepped
    return str(last - first + 1)


def _memory(lives: Sequence[Attempt | None]) -> list[Compared]:
    """Return what first ranks held at their deaths, and how fast it grew."""
    held = [
        growth.held(attempt.samples, named(attempt)) if attempt else None
        for attempt in lives
    ]
    if any(one is None for one in held):
        return []
    last = [one.last_kb for one in held if one]
    rate = [one.per_minute_kb for one in held if one]
    return [
        Compared("memory at its death", tuple(map(size, last)), _near(last)),
        Compared("growth per minute", tuple(map(_growth, rate)), _near(rate)),
    ]


def _growth(per_minute_kb: float) -> str:
    return size(per_minute_kb) if per_minute_kb else "flat"


def _near(values: Sequence[float]) -> str:
    most, least = max(values), min(values)
    return "same" if most - least <= _ALIKE * max(abs(most), 1e-9) else "different"
