"""What the page tells of a run: attempts, ranks, signals. Values only.

All times are CLOCK_REALTIME, seconds. In a story without a clock they only tell the
order.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple, TypeAlias

from dsup.core.verdict import Verdict
from dsup.facts.samples import Sample

RANKS_MAX: Final = 4096
"""So many ranks of an attempt are looked at."""

_UNSURE_S: Final = 5.0
"""A kernel's clock, or that of another log, may differ by so much."""

Kind: TypeAlias = Literal["first", "victim", "ended", "told", "own", "done", "open"]
"""How a rank's life ended: it began there, it died of another, dsup ended it, dsup told
it to end and it left with 0, it failed by itself, it ended with 0, or nobody knows."""


class RankLife(NamedTuple):
    """One rank in one attempt.

    Attributes:
        node: empty where it is the story's.
        pid: None if unknown.
        start_s: when its process existed.
        end_s: when it was gone; None where nothing tells.
        status: exit code, or minus the signal number; None if unknown.
        ready_s: when its start-up was over; None if unknown.
        step: its last step; None if unknown.
    """

    rank: int
    start_s: float
    end_s: float | None = None
    status: int | None = None
    node: str = ""
    pid: int | None = None
    ready_s: float | None = None
    step: int | None = None


class Signal(NamedTuple):
    """A signal that dsup sent to ranks."""

    at_s: float
    signum: int
    ranks: tuple[int, ...]


class Doubt(NamedTuple):
    """Ranks that seemed to hang.

    Attributes:
        until_s: when they went on; None if they did not.
    """

    at_s: float
    ranks: tuple[int, ...]
    until_s: float | None = None


class Attempt(NamedTuple):
    """One attempt.

    Attributes:
        ranks: in rank order.
        start_s: when it was ordered.
        end_s: when all of it was gone, or when it was last heard of.
        verdict: its times are CLOCK_REALTIME; None where it did not fail.
        signals: those of dsup, in order.
        from_step: the step it resumed from; None if unknown.
        stepped: time and number of its first and its last new step; None where it made
            none, or nothing tells.
        checkpoints: when checkpoints were begun.
        samples: their times are CLOCK_REALTIME.
        doubts: when ranks seemed to hang, in order.
        slow: rank, times its peers' step time, and why: of those that lagged.
    """

    number: int
    start_s: float
    end_s: float
    ranks: tuple[RankLife, ...]
    verdict: Verdict | None = None
    signals: tuple[Signal, ...] = ()
    from_step: int | None = None
    stepped: tuple[tuple[float, int], tuple[float, int]] | None = None
    checkpoints: tuple[float, ...] = ()
    samples: tuple[Sample, ...] = ()
    doubts: tuple[Doubt, ...] = ()
    slow: tuple[tuple[int, float, str], ...] = ()


class Role(NamedTuple):
    """What a rank's end means.

    Attributes:
        of: the rank it died of; None for none, or if unknown.
        how: a few words; empty for none.
    """

    kind: Kind
    of: int | None = None
    how: str = ""


def roles(attempt: Attempt) -> dict[int, Role]:
    """Return what each rank's end means, by rank."""
    verdict = attempt.verdict
    told: dict[int, Role] = {}
    if verdict is not None:
        left = {life.rank for life in attempt.ranks if life.status == 0}
        left.update(verdict.left_with_0)
        told |= {
            rank: Role("told" if rank in left else "ended")
            for rank in verdict.ended_by_dsup
        }
        told |= {v.rank: Role("victim", v.of, v.how) for v in verdict.victims}
        told |= {rank: Role("first") for rank in verdict.first_ranks}
    return {life.rank: told.get(life.rank) or _plain(life) for life in attempt.ranks}


def began_s(attempt: Attempt) -> float | None:
    """Return when its death began; None where nothing tells, or no time it can be."""
    if attempt.verdict is None:
        return None
    at_s = attempt.verdict.at_s
    possible = attempt.start_s - _UNSURE_S <= at_s <= attempt.end_s + _UNSURE_S
    return at_s if possible else None


def named(attempt: Attempt) -> frozenset[int]:
    """Return the first ranks that stand out; none where all ranks failed alike."""
    verdict = attempt.verdict
    if verdict is None:
        return frozenset()
    first = frozenset(verdict.first_ranks)
    everybody = len(attempt.ranks) > 1 and len(first) >= len(attempt.ranks)
    return frozenset() if everybody else first


def _plain(life: RankLife) -> Role:
    if life.status is None:
        return Role("open")
    return Role("done") if life.status == 0 else Role("own")
