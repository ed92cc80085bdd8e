"""Stragglers: ranks that have been slower than their peers for some time. Pure.

A rank is compared with the median of the others, so that one slow rank does not move
what it is measured by. Nothing is done to a straggler; it is named, with a reason where
there is one, and at most once in ``AGAIN_S``: a rank at the edge fills no journal.

Not covered: ranks that wait for each other in every step take equally long for it,
whoever is late. Step times tell them apart where a rank makes steps of its own. When
within a step a rank has beaten does not: a loop beats where it likes, mostly at its top
and so just after the collective, which all leave together. Nor does processor time: who
waits for a GPU, or for others on one, spins as busily as who works.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

FACTOR: Final = 1.5
"""Slower than the peers' median by so much is a straggler."""

KEEPS_UP: Final = 1.2
"""And by less than that it keeps up again."""

AFTER_S: Final = 60.0
AGAIN_S: Final = 600.0


class Lag(NamedTuple):
    """What is remembered of a rank.

    Attributes:
        since_s: since when it has been slower; None while it keeps up.
        said_s: when it was last spoken of; None for never.
        named: it is known as a straggler to whoever reads.
    """

    since_s: float | None = None
    said_s: float | None = None
    named: bool = False


class Found(NamedTuple):
    """News of a rank.

    Attributes:
        times: its step time over its peers' median; 0 where it keeps up again.
        why: a reason, where there is one; else empty.
    """

    rank: int
    times: float
    why: str = ""


def observe(
    lags: Mapping[int, Lag],
    steps_s: Mapping[int, float],
    now_s: float,
    reasons: Mapping[int, str],
) -> tuple[dict[int, Lag], tuple[Found, ...]]:
    """Fold one look at all step times into what is remembered.

    Args:
        lags: what is remembered of this attempt, by rank.
        steps_s: the usual step time of each rank that has one, seconds.
        now_s: agent clock, seconds.
        reasons: why a rank may be slow, by rank: a throttled GPU, a narrow link.

    Returns:
        What is remembered now, and what is news.
    """
    after: dict[int, Lag] = {}
    found: list[Found] = []
    for rank, step_s in sorted(steps_s.items()):
        times = times_of(rank, step_s, steps_s)
        lag = _looked_at(lags.get(rank, Lag()), times, now_s)
        if (lag.since_s is not None) is not lag.named and _may_say(lag, times, now_s):
            lag = lag._replace(said_s=now_s, named=not lag.named)
            why = reasons.get(rank, "") if lag.named else ""
            found.append(Found(rank, times if lag.named else 0.0, why))
        after[rank] = lag
    return after, tuple(found)


def times_of(rank: int, step_s: float, steps_s: Mapping[int, float]) -> float:
    """Return a step time over the median of the others'; 1 where that says nothing.

    Args:
        rank: whose it is.
        step_s: the step time, seconds.
        steps_s: that of each rank, seconds.
    """
    others = [other_s for other, other_s in steps_s.items() if other != rank]
    # Not statistics.median_high: its import alone costs 15 ms and a MiB.
    usual_s = sorted(others)[len(others) // 2] if others else 0.0
    return step_s / usual_s if usual_s > 0 else 1.0


def _looked_at(lag: Lag, times: float, now_s: float) -> Lag:
    if times >= FACTOR and lag.since_s is None:
        return lag._replace(since_s=now_s)
    if times < (KEEPS_UP if lag.named else FACTOR):
        return lag._replace(since_s=None)
    return lag


def _may_say(lag: Lag, times: float, now_s: float) -> bool:
    quiet = lag.said_s is None or now_s - lag.said_s >= AGAIN_S
    if lag.since_s is None:
        return quiet
    return quiet and times >= FACTOR and now_s - lag.since_s >= AFTER_S
