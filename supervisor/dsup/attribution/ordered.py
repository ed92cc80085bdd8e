"""Lines of evidence about the order of collectives, and about what GPUs did. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dsup.attribution.collectives import Stuck, stuck
from dsup.attribution.standstill import is_library
from dsup.attribution.timeline import Timeline
from dsup.attribution.wording import listed, one_line, others
from dsup.core.verdict import Evidence
from dsup.facts import gpu_load
from dsup.facts.flight_recorder import WORLD, Call, Trace

LOADS_MAX = 4


def of_order(timeline: Timeline) -> tuple[Evidence, ...]:
    """Return who has called what, as far as flight recorders tell."""
    found = stuck(timeline.traces, timeline.world_size)
    rank = found.ranks[0] if len(found.ranks) == 1 else None
    return tuple(
        Evidence("order", one_line(text), rank, timeline.stacks_s)
        for text in lines(found, timeline.traces.values())
    )


def lines(found: Stuck, traces: Iterable[Trace]) -> Iterator[str]:
    """Yield what was found in words, and where the ranks called it."""
    if found.kind == "none":
        return
    yield f"{_said(found)}{_group(found)}{_silent(found)}"
    by_rank = {trace.rank: trace for trace in traces}
    if found.ranks and found.ranks[0] in by_rank:
        last = _last(found, by_rank[found.ranks[0]])
        if last:
            yield f"rank {found.ranks[0]} called last: {_call(last)}"


def of_loads(timeline: Timeline, ranks: Iterable[int]) -> tuple[Evidence, ...]:
    """Return what GPUs did: those of these ranks, and one of the others."""
    told = [rank for rank in ranks if rank in timeline.loads]
    rest = [rank for rank in sorted(timeline.loads) if rank not in told]
    shown = (*told[:LOADS_MAX], *rest[:1])
    return tuple(
        Evidence(
            "nvml",
            f"rank {rank}: {gpu_load.told(timeline.loads[rank])}",
            rank,
            timeline.loads[rank].at_s,
        )
        for rank in shown
    )


def _said(found: Stuck) -> str:
    number, op = f"#{found.number}", f"{found.op} #{found.number}".strip()
    who, inside = _ranks(found.ranks), _ranks(found.waiting)
    are = "are" if len(found.waiting) > 1 else "is"
    match found.kind:
        case "absent":
            at = {found.last.get(rank, 0) for rank in found.ranks}
            (last,) = at if len(at) == 1 else (0,)
            done = f"finished #{last}" if last > 0 else f"did not call {number}"
            return f"{who} {done}; {inside} {are} inside {op}"
        case "mismatch":
            each = [f"rank {r} called {what}" for r, what in found.others.items()]
            told = ", ".join(each[:4])
            rest = set(found.waiting) - set(found.others)
            usual = f", {others(len(rest))} {found.op}" if rest else ""
            return f"as {number}, {told}{usual}"
        case "not_started":
            return f"{inside} {are} inside {op}; {who} called it and have not begun it"
        case "circle":
            return f"{inside} {are} inside {op}, and others of it inside other groups"
        case _:
            return f"{inside} {are} inside {op}; none has finished it"


def _group(found: Stuck) -> str:
    if found.text == WORLD or not found.group:
        return ""
    return f", of group {found.text or found.group}"


def _silent(found: Stuck) -> str:
    return f"; {_ranks(found.silent)} gave no trace" if found.silent else ""


def _ranks(ranks: tuple[int, ...]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {listed(ranks)}"


def _last(found: Stuck, trace: Trace) -> Call | None:
    calls = [call for call in trace.calls if call.group == found.group]
    return calls[-1] if calls else None


def _call(call: Call) -> str:
    own = next((frame for frame in call.frames if not is_library(frame)), None)
    sizes = f" {call.sizes}" if call.sizes else ""
    return f"{call.op} #{call.number}{sizes}{f' at {own.place}' if own else ''}"
