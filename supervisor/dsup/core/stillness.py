"""Stillness: ranks that tell nothing of themselves, and do nothing any more. Pure.

Of an unmodified script only the kernel knows: what processor time a rank and its
helpers have used since the last census, and whether they have written anything, to
whatever. That is no proof of a hang. So what is found here is a suspicion for people,
with stacks, on which nothing is ever done; ``--hang-after SECONDS`` is for that.

Two things are found, each after ``STILL_S``, which is shorter than any time-out that
PyTorch has by default, and longer than a file system or a service is usually away:

- *still*: no rank of the node has used a processor or written a byte. Whatever trains
  does one or the other: even a GPU at work has a process that starts its kernels, or
  spins while it waits for them.
- *idle*: less than half of the ranks are still, and all others keep a processor busy
  and write nothing, as ranks do that wait for a GPU's collective.

Neither is found before every rank concerned has worked for ``WORKED_S`` in all: a
coordinator that only ever waits has never worked. Any work and any output starts the
time again; while something keeps the agent from looking, it stands.

Not covered, because others than hangs look alike: all ranks busy and silent (a
compilation, or a loop that prints nothing), and one busy rank for which all others wait
asleep (rank 0 that prepares a data set).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from dsup.core.activity import FLAT_SHARE, Work
from dsup.core.watch import Suspicion

EVERY_S: Final = 30.0
"""A census of eight ranks with sixteen helpers each takes some milliseconds."""

CLOSE_AFTER_S: Final = 60.0
"""One that sees all helpers costs more, and is for who may be still."""

STILL_S: Final = 300.0
WORKED_S: Final = 60.0

WORK_SHARE: Final = 0.2
BUSY_SHARE: Final = 0.5
_GAP_TIMES: Final = 3.0


class Past(NamedTuple):
    """What is remembered of a rank.

    Attributes:
        still_s: since when it does nothing; None while it does something.
        busy_s: since when it is busy and writes nothing; None while that is not so.
        worked_s: for how long it has worked so far, seconds.
    """

    still_s: float | None = None
    busy_s: float | None = None
    worked_s: float = 0.0


class Stillness(NamedTuple):
    """What is remembered of an attempt.

    Attributes:
        at_s: when the last census was, agent clock, seconds; None before the first.
        ranks: those that ran then.
        wrote: somebody has written something since the first.
    """

    at_s: float | None = None
    ranks: Mapping[int, Past] = {}
    wrote: bool = False


def counted(before: Stillness, works: Mapping[int, Work], now_s: float) -> Stillness:
    """Return what is remembered after one more census.

    Args:
        before: what was remembered.
        works: of each rank that runs.
        now_s: agent clock, seconds.
    """
    since_s = now_s if before.at_s is None else before.at_s
    if now_s - since_s > _GAP_TIMES * EVERY_S:
        before = rested(before, now_s - since_s)
        since_s = now_s
    ranks = {
        rank: _past(before.ranks.get(rank, Past()), work, since_s, now_s)
        for rank, work in works.items()
    }
    wrote = before.at_s is not None and any(work.wrote for work in works.values())
    return Stillness(now_s, ranks, before.wrote or wrote)


def rested(before: Stillness, for_s: float) -> Stillness:
    """Return what is remembered, but for a time in which nobody has looked."""
    ranks = {
        rank: past._replace(
            still_s=None if past.still_s is None else past.still_s + for_s,
            busy_s=None if past.busy_s is None else past.busy_s + for_s,
        )
        for rank, past in before.ranks.items()
    }
    at_s = None if before.at_s is None else before.at_s + for_s
    return before._replace(at_s=at_s, ranks=ranks)


def suspects(
    stillness: Stillness, now_s: float, strain: float = 1.0
) -> dict[int, Suspicion]:
    """Return who is suspected, by rank.

    Args:
        stillness: what is remembered.
        now_s: agent clock, seconds.
        strain: by what the node's overload stretches everything.
    """
    ranks = stillness.ranks
    still = {r: past.still_s for r, past in ranks.items() if past.still_s is not None}
    busy = [past.busy_s for rank, past in ranks.items() if rank not in still]
    if not still or not stillness.wrote:
        return {}
    if any(ranks[rank].worked_s < WORKED_S for rank in still):
        return {}
    everyone = not busy
    if not everyone and (None in busy or len(still) >= len(busy)):
        return {}
    since_s = max(*still.values(), *(at_s for at_s in busy if at_s is not None), 0.0)
    if now_s - since_s < STILL_S * strain:
        return {}
    return {
        rank: Suspicion(rank, "still" if everyone else "idle", since_s, STILL_S)
        for rank in still
    }


def wants_close(stillness: Stillness, now_s: float) -> bool:
    """Return whether the next census is to see all helpers."""
    times = [p.still_s for p in stillness.ranks.values() if p.still_s is not None]
    return any(now_s - at_s >= CLOSE_AFTER_S for at_s in times)


def _past(before: Past, work: Work, since_s: float, now_s: float) -> Past:
    passed_s = now_s - since_s
    share = work.cpu_s / passed_s if passed_s > 0 else 0.0
    flat = share < FLAT_SHARE and not work.wrote
    busy = share >= BUSY_SHARE and not work.wrote
    return Past(
        _since(before.still_s, since_s) if flat else None,
        _since(before.busy_s, since_s) if busy else None,
        before.worked_s + (passed_s if share >= WORK_SHARE else 0.0),
    )


def _since(before_s: float | None, now_s: float) -> float:
    return now_s if before_s is None else before_s
