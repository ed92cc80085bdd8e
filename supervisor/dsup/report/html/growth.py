"""How memory grew: what samples tell of a rank and of the others. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from dsup.facts.samples import Sample
from dsup.report.html.lives import Attempt, named
from dsup.report.html.words import duration, size
from dsup.report.sentences import ranks as ranks_words

_MINUTE_S: Final = 60.0
_FLAT: Final = 0.03
"""Less growth than this share in the time that was looked at is none."""

_LOOKED_AT: Final = 0.6
"""This last share of the samples: before it, start-up takes memory."""


class Growth(NamedTuple):
    """What a set of ranks held.

    Attributes:
        last_kb: at the last sample.
        per_minute_kb: how much it grew; 0 for flat.
        over_s: the time that was looked at.
    """

    last_kb: float
    per_minute_kb: float
    over_s: float


def held(samples: Sequence[Sample], ranks: frozenset[int]) -> Growth | None:
    """Return what ranks held together; None where no sample tells."""
    points: list[tuple[float, float]] = [
        (sample.at_s, sum(sample.rss_kb.get(rank, 0) for rank in ranks))
        for sample in samples
    ]
    points = [point for point in points if point[1] > 0]
    if not points:
        return None
    late = points[int(len(points) * (1 - _LOOKED_AT)) :]
    (from_s, from_kb), (to_s, to_kb) = late[0], late[-1]
    over_s = to_s - from_s
    grown_kb = to_kb - from_kb
    flat = over_s <= 0 or abs(grown_kb) < _FLAT * to_kb
    return Growth(to_kb, 0.0 if flat else grown_kb / over_s * _MINUTE_S, over_s)


def sides(attempt: Attempt) -> tuple[frozenset[int], frozenset[int]]:
    """Return the ranks where it began, and the others that samples tell of."""
    first = named(attempt)
    seen = {rank for sample in attempt.samples[-1:] for rank in sample.rss_kb}
    return first, frozenset(seen) - first


def sentence(attempt: Attempt) -> str:
    """Return how the first rank's memory grew beside the others'; empty if unknown."""
    first, others = sides(attempt)
    own, rest = held(attempt.samples, first), held(attempt.samples, others)
    if own is None or not first:
        return ""
    who = ranks_words(first).capitalize()
    said = f"{who} held {size(own.last_kb)}"
    if own.per_minute_kb > 0:
        said += f" and grew by {size(own.per_minute_kb)} per minute"
        said += f" over the last {duration(own.over_s)}"
    if rest is None or not others:
        return f"{said}."
    each = f"{size(rest.last_kb / len(others))} each"
    stayed = "stayed at" if not rest.per_minute_kb else "held"
    many = (
        f"the other {len(others)} {stayed} {each}"
        if len(others) > 1
        else (f"the other rank {stayed} {size(rest.last_kb)}")
    )
    return f"{said}; {many}."
