"""Activity: whether ranks and their helpers do anything, step or no step. Pure.

A step that takes long may be a compilation, an evaluation without a phase, the last
checkpoint: whoever does such a thing uses a processor, or writes. A hang does neither,
but for one thing: whoever waits for a GPU spins, which keeps one processor busy, writes
nothing and touches no new memory. So two things are told apart: a rank is *busy* that
does anything at all, and *lively* where that is more than spinning.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

FLAT_SHARE: Final = 0.02
"""Of one processor: watchdog threads and polls of libraries use less."""

SPIN_SHARE: Final = 0.9
"""Of the time: whoever spins runs, or waits to be let run, and does nothing else."""

SPIN_FAULTS: Final = 10.0
"""In a second: the kernel's balancing of memory makes some of anybody."""


class Work(NamedTuple):
    """What a rank and its helpers have done since the census before.

    Attributes:
        cpu_s: processor time, seconds.
        wrote: they have written something, or that is unknown.
        faults: how often they have touched memory that was not there before.
        joined: a helper is new.
        queued_s: how long its main thread has waited for a processor, seconds.
    """

    cpu_s: float
    wrote: bool
    faults: int = 0
    joined: bool = False
    queued_s: float = 0.0


class Active(NamedTuple):
    """When a rank was last seen to do something, agent clock, seconds.

    Attributes:
        busy_s: anything at all.
        lively_s: more than spinning.
    """

    busy_s: float
    lively_s: float


def seen(
    before: Mapping[int, Active],
    works: Mapping[int, Work],
    passed_s: float | None,
    now_s: float,
) -> dict[int, Active]:
    """Return when ranks were last seen to do something, after one more census.

    Args:
        before: what was known.
        works: what each rank that runs has done since.
        passed_s: since the census before, seconds; None for the first one, before which
            every rank may have done something.
        now_s: agent clock, seconds.
    """
    return {
        rank: _seen(before.get(rank), work, passed_s, now_s)
        for rank, work in works.items()
    }


def _seen(
    before: Active | None, work: Work, passed_s: float | None, now_s: float
) -> Active:
    if before is None or passed_s is None:
        return Active(now_s, now_s)
    share = work.cpu_s / passed_s if passed_s > 0 else 0.0
    busy = work.wrote or work.joined or share >= FLAT_SHARE
    still = not work.wrote and not work.joined and work.faults < SPIN_FAULTS * passed_s
    spins = still and work.cpu_s + work.queued_s >= SPIN_SHARE * passed_s
    return Active(
        now_s if busy else before.busy_s,
        now_s if busy and not spins else before.lively_s,
    )


def last_s(active: Mapping[int, Active], rank: int) -> float | None:
    """Return when last something was done that this rank may wait for; None if unknown.

    Its own work, of whatever kind, or that of another rank of the node: of that only
    what is no spinning, since ranks that wait for this one spin.
    """
    own = [active[rank].busy_s] if rank in active else []
    others = [one.lively_s for other, one in active.items() if other != rank]
    return max((*own, *others), default=None)


def shifted(active: Mapping[int, Active], by_s: float) -> dict[int, Active]:
    """Return the same, that much later: so long nobody has looked."""
    return {
        rank: Active(one.busy_s + by_s, one.lively_s + by_s)
        for rank, one in active.items()
    }
