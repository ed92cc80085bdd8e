"""How a rank's memory went before its end, beside the others'. Pure.

A kill for memory names a victim; what grew is what a person has to look for, and the
two need not be the same rank.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from dsup.attribution.timeline import Timeline
from dsup.attribution.wording import gib, others
from dsup.core.verdict import Evidence
from dsup.facts.samples import Sample

SAMPLES_MIN: Final = 2
"""Fewer tell no direction."""

WINDOW_SHARE: Final = 0.5
"""The rate is that of the last half of what was seen: a start-up grows by nature."""

FLAT_SHARE: Final = 0.05
FLAT_KB: Final = 32 * 1024
"""Less than both in the window is no growth."""

_MINUTE_S: Final = 60.0


class Curve(NamedTuple):
    """A rank's memory over the window.

    Attributes:
        first_kb, last_kb: resident, helpers included, KiB.
        span_s: between the two, seconds.
    """

    rank: int
    first_kb: int
    last_kb: int
    span_s: float

    @property
    def grows(self) -> bool:
        """Whether it is more than the noise of a running program."""
        grown = self.last_kb - self.first_kb
        return grown > max(FLAT_KB, FLAT_SHARE * self.first_kb)

    @property
    def kb_per_minute(self) -> float:
        """Growth, KiB a minute."""
        return (self.last_kb - self.first_kb) * _MINUTE_S / self.span_s


def of_growth(timeline: Timeline, ranks: Iterable[int]) -> tuple[Evidence, ...]:
    """Return how the memory of ranks went, and of those that grew beside them.

    Args:
        timeline: its samples are looked at up to the first death.
        ranks: those that the verdict is about; two of them at most are told of.
    """
    samples = _before_the_end(timeline)
    known = curves(samples)
    of_interest = [known[rank] for rank in sorted(set(ranks)) if rank in known][:2]
    named = {curve.rank for curve in of_interest}
    rest = [curve for rank, curve in known.items() if rank not in named]
    growing = sorted((c for c in rest if c.grows), key=lambda c: -c.kb_per_minute)
    if of_interest and not any(c.grows for c in of_interest):
        of_interest += growing[:1]
    at_s = samples[-1].at_s if samples else None
    return tuple(
        Evidence("samples", f"{_told(curve)}{_beside(curve, known)}", curve.rank, at_s)
        for curve in of_interest
    )


def curves(samples: Sequence[Sample]) -> dict[int, Curve]:
    """Return the curve of each rank that enough samples tell of."""
    if len(samples) < SAMPLES_MIN:
        return {}
    last_s = samples[-1].at_s
    since_s = last_s - WINDOW_SHARE * (last_s - samples[0].at_s)
    later = [sample for sample in samples if sample.at_s >= since_s]
    window = later if len(later) >= SAMPLES_MIN else samples[-SAMPLES_MIN:]
    found = {}
    for rank in window[0].rss_kb.keys() & window[-1].rss_kb.keys():
        span_s = window[-1].at_s - window[0].at_s
        if span_s > 0:
            first_kb, last_kb = window[0].rss_kb[rank], window[-1].rss_kb[rank]
            found[rank] = Curve(rank, first_kb, last_kb, span_s)
    return dict(sorted(found.items()))


def _before_the_end(timeline: Timeline) -> Sequence[Sample]:
    """Return the samples in which every rank still ran."""
    first_s = min((end.at_s for end in timeline.ends), default=float("inf"))
    return [sample for sample in timeline.samples if sample.at_s < first_s]


def _told(curve: Curve) -> str:
    if not curve.grows:
        return f"rank {curve.rank} held {gib(curve.last_kb)}, flat"
    rate = gib(round(curve.kb_per_minute))
    return (
        f"rank {curve.rank} grew from {gib(curve.first_kb)} to {gib(curve.last_kb)}, "
        f"+{rate}/min"
    )


def _beside(curve: Curve, known: dict[int, Curve]) -> str:
    """Return how the others stood at the same time."""
    rest = [other for rank, other in known.items() if rank != curve.rank]
    if not rest:
        return ""
    sizes = sorted(other.last_kb for other in rest)
    low, high = gib(sizes[0]), gib(sizes[-1])
    spread = low if low == high else f"{low} to {high}"
    grew = sum(other.grows for other in rest)
    how = "flat" if not grew else f"{grew} of them growing"
    return f"; {others(len(rest))} {spread}, {how}"
