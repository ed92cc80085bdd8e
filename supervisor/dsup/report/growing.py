"""Memory as the samples of an attempt have it, and whose growth is worth a note. Pure.

The rule. Where the cgroup that all ranks live in has a limit, a rank that grows has a
note if the cgroup is full within ``FULL_SOON_MIN`` at its present rate. Where it has
none, or none is known, a rank has one if it grew by more than ``FAST_SHARE`` of itself
a minute between each two of the last ``FAST_SAMPLES`` samples. What is no more than the
noise of a running program (``Curve.grows``) has none in either case.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from dsup.attribution.growth import Curve
from dsup.facts.samples import Sample

FULL_SOON_MIN: Final = 30.0
FAST_SHARE: Final = 0.1
FAST_SAMPLES: Final = 3

_MINUTE_S: Final = 60.0


def of_cgroup(samples: Iterable[Sample]) -> dict[str, Any] | None:
    """Return the memory of the cgroup that all ranks live in, and how it grows.

    Args:
        samples: oldest first; None comes back where none of them tells.
    """
    told = [one for one in samples if one.cgroup_kb is not None]
    if not told:
        return None
    first, last = told[0], told[-1]
    used, before = last.cgroup_kb or 0, first.cgroup_kb or 0
    span_s = last.at_s - first.at_s
    rate = round((used - before) * _MINUTE_S / span_s) if span_s > 0 else None
    return {"used_kb": used, "limit_kb": last.limit_kb, "kb_per_min": rate}


def noteworthy(
    samples: Sequence[Sample],
    curves: Mapping[int, Curve],
    cgroup: Mapping[str, Any] | None,
) -> frozenset[int]:
    """Return the ranks whose growth is worth a note.

    Args:
        samples: of this attempt, oldest first.
        curves: of the ranks, from the same samples.
        cgroup: from ``of_cgroup``.
    """
    growing = frozenset(rank for rank, curve in curves.items() if curve.grows)
    if cgroup is not None and cgroup["limit_kb"] is not None:
        return growing if _is_full_soon(cgroup) else frozenset()
    return frozenset(rank for rank in growing if _is_fast(rank, samples))


def _is_full_soon(cgroup: Mapping[str, Any]) -> bool:
    left, rate = cgroup["limit_kb"] - cgroup["used_kb"], cgroup["kb_per_min"]
    return rate is not None and rate > 0 and left <= rate * FULL_SOON_MIN


def _is_fast(rank: int, samples: Sequence[Sample]) -> bool:
    told = [one for one in samples if rank in one.rss_kb][-FAST_SAMPLES:]
    return len(told) == FAST_SAMPLES and all(
        (after.rss_kb[rank] - before.rss_kb[rank]) * _MINUTE_S
        > FAST_SHARE * before.rss_kb[rank] * (after.at_s - before.at_s)
        for before, after in pairwise(told)
    )
