"""What dumps of flight recorders say that lie beside somebody else's logs. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Final

from dsup.attribution import ordered
from dsup.attribution.advice import advice_for
from dsup.attribution.collectives import Stuck, stuck
from dsup.attribution.order import told
from dsup.attribution.wording import one_line, sentence
from dsup.core.verdict import Certainty, Evidence, Verdict
from dsup.facts.flight_recorder import WORLD, Trace

_VAGUE: Final = frozenset({"hang", "nccl_network", "unknown"})
_NS: Final = 1e9


def judge_traces(
    traces: Mapping[int, Trace], files: Mapping[int, str]
) -> Verdict | None:
    """Return what traces show by themselves; None where nobody waits.

    Ranks may have dumped at different moments, so that one is missing is likely;
    that two have called different things by one number is proven.

    Args:
        traces: by rank.
        files: where each stands.
    """
    size = _size(traces.values())
    found = stuck(traces, size)
    if found.kind == "none":
        return None
    sure: Certainty = "proven" if found.kind == "mismatch" and found.ranks else "likely"
    verdict = Verdict(
        0,
        "collective_mismatch" if found.kind == "mismatch" else "hang",
        found.ranks,
        sure,
        _since(found, traces),
        sentence(told(found, size, sure)),
        "called_out_of_order",
        tuple(_evidence(found, traces, files)),
        signature=f"{found.kind} {found.op}",
    )
    return verdict._replace(advice=advice_for(verdict.cause, verdict.rule))


def joined(logged: Verdict, traced: Verdict) -> Verdict:
    """Return one verdict of what a log and what traces say of the same attempt.

    A log of victims does not know who did not come; a cause that it does know stays.
    """
    if logged.cause not in _VAGUE:
        return logged._replace(evidence=(*logged.evidence, *traced.evidence))
    return traced._replace(
        attempt=logged.attempt,
        at_s=logged.at_s if math.isnan(traced.at_s) else traced.at_s,
        evidence=(*traced.evidence, *logged.evidence),
        victims=tuple(v for v in logged.victims if v.rank not in traced.first_ranks),
        status=logged.status,
    )


def _size(traces: Iterable[Trace]) -> int:
    """Return how many ranks there are: as the group of all tells, or were seen."""
    known = list(traces)
    told_ranks = [
        rank
        for trace in known
        for group in trace.groups.values()
        if group.text == WORLD
        for rank in group.ranks
    ]
    return max((*told_ranks, *(trace.rank for trace in known)), default=0) + 1


def _since(found: Stuck, traces: Mapping[int, Trace]) -> float:
    """Return since when somebody waits, CLOCK_REALTIME; NaN if unknown."""
    begun = [
        call.at_ns / _NS
        for rank in found.waiting
        for call in (traces[rank].calls if rank in traces else ())
        if (call.group, call.number) == (found.group, found.number) and call.at_ns
    ]
    return min(begun, default=math.nan)


def _evidence(
    found: Stuck, traces: Mapping[int, Trace], files: Mapping[int, str]
) -> Iterable[Evidence]:
    rank = found.ranks[0] if found.ranks else min(found.waiting, default=0)
    whose = rank if len(found.ranks) == 1 else None
    for text in ordered.lines(found, traces.values()):
        yield Evidence("order", one_line(text), whose, file=files.get(rank, ""))
