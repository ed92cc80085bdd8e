"""A rank at one moment: its row of the status document, and what is worst about it.

Pure. What is unknown, or was not measured, is null.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from dsup.attribution.growth import Curve
from dsup.core.exits import signal_name
from dsup.core.state import Death, State
from dsup.report.slots import Slots

ENDED: Final = "ended by dsup"
"""Says nothing of the rank, but that it was alive and well enough to be ended."""

TOLD_TO_END: Final = "told to end by dsup"
"""Of one that dsup signalled, and that then ended with 0."""

_DOUBTS: Final[Mapping[str, str]] = {
    "frozen": "frozen (state T)",
    "asleep": "asleep in the kernel (state D)",
    "absent": "did not come where the others wait",
}
_GPU_PROBLEMS: Final[Mapping[str, str]] = {
    "ecc": "ECC error",
    "row_remap": "GPU memory: a row could not be remapped",
    "lost": "GPU lost",
    "reset_required": "GPU wants a reset",
    "recovery_action": "GPU wants a recovery action",
    "xid": "Xid of the hardware",
}


class Process(NamedTuple):
    """What was measured of a rank.

    Attributes:
        cpu_percent: of one processor, of the rank alone; None if unknown.
        rss_kb: resident, helpers included where a sample told; None if unknown.
    """

    cpu_percent: float | None = None
    rss_kb: int | None = None


class Gpu(NamedTuple):
    """A rank's GPU.

    Attributes:
        number: NVML's.
        ecc: ``ok``, ``bad`` or ``unknown``: what the probe said of it last.
        problem: a word of ``facts.hardware.Problem``; empty for none.
        errors: uncorrectable memory errors since the attempt began.
    """

    number: int
    ecc: str
    problem: str = ""
    errors: int = 0


class Facts(NamedTuple):
    """What is known of one rank.

    Attributes:
        pid: None where it was not started.
        curve: how its memory went; None while too little was seen.
        grows: its memory grows in a way that matters (``growing``).
        asked: dsup told it to end.
        limit_s: how long it may make no progress, seconds; None for unknown.
        times: its step time over its peers' median; None for unknown.
    """

    rank: int
    pid: int | None = None
    process: Process = Process()
    gpu: Gpu | None = None
    curve: Curve | None = None
    grows: bool = False
    asked: bool = False
    limit_s: float | None = None
    times: float | None = None


def row(facts: Facts, state: State, slots: Slots, now_s: float) -> dict[str, Any]:
    """Return a rank as the status document has it.

    Args:
        facts: what is known of it.
        state: how the run stands.
        slots: the heartbeat page.
        now_s: the moment, agent clock, seconds.
    """
    rank = facts.rank
    ended = _end(state, rank)
    known: dict[str, Any] = {
        "rank": rank,
        "local_rank": rank,
        "pid": facts.pid,
        "gpu": facts.gpu.number if facts.gpu else None,
        "state": "alive" if rank in state.alive else ("ended" if ended else None),
        "status": ended.status if ended else None,
        "phase": slots.phase(rank),
        "step": slots.step(rank),
    }
    alive = _of_the_living(facts, slots, now_s)
    if rank not in state.alive:
        alive = dict.fromkeys(alive)
    ecc = facts.gpu.ecc if facts.gpu else None
    return {**known, **alive, "ecc": ecc, "note": note(facts, state, slots, now_s)}


def note(facts: Facts, state: State, slots: Slots, now_s: float) -> str:
    """Return what is worst about a rank, in a few words; empty for nothing."""
    rank, ended = facts.rank, _end(state, facts.rank)
    if ended is not None:
        return how_it_ended(ended.status, asked=facts.asked)
    doubt = state.hang or state.suspected
    if doubt is not None and rank in doubt.ranks:
        return _DOUBTS.get(doubt.why) or _overdue(doubt.why, facts, state, slots, now_s)
    if facts.gpu and facts.gpu.problem:
        return _of_gpu(facts.gpu)
    if rank in state.slow:
        times = facts.times
        return f"slow: {times:.1f}x the median" if times else "slower than its peers"
    return "memory grows" if facts.grows else ""


def how_it_ended(status: int, *, asked: bool) -> str:
    """Return how a rank ended, in a few words; empty where it did as it should.

    Args:
        status: its exit code, or minus its signal number.
        asked: dsup told it to end.
    """
    if asked:
        return ENDED if status else TOLD_TO_END
    if not status:
        return ""
    return f"killed by {signal_name(-status)}" if status < 0 else f"exit code {status}"


def _overdue(why: str, facts: Facts, state: State, slots: Slots, now_s: float) -> str:
    """Return for how long a rank has given no sign, and for how long it may."""
    rank, silent = facts.rank, why == "silent"
    last_s = slots.beat_s(rank) if silent else slots.progress_s(rank)
    for_s = max(0.0, now_s - (last_s or state.started_s))
    limit = "" if facts.limit_s is None else f" (limit {facts.limit_s:.0f})"
    return f"{'silent' if silent else 'no step for'} {for_s:.0f} s{limit}"


def _of_gpu(gpu: Gpu) -> str:
    if gpu.problem == "ecc" and gpu.errors:
        return f"ECC +{gpu.errors}"
    return _GPU_PROBLEMS.get(gpu.problem, "GPU is not well")


def _of_the_living(facts: Facts, slots: Slots, now_s: float) -> dict[str, Any]:
    rank, curve = facts.rank, facts.curve
    return {
        "beat_age_s": _age(now_s, slots.beat_s(rank)),
        "step_age_s": _age(now_s, slots.progress_s(rank)),
        "cpu_percent": facts.process.cpu_percent,
        "rss_kb": facts.process.rss_kb,
        "kb_per_min": round(curve.kb_per_minute) if curve else None,
    }


def _age(now_s: float, at_s: float | None) -> float | None:
    return None if at_s is None else round(max(0.0, now_s - at_s), 3)


def _end(state: State, rank: int) -> Death | None:
    return next((one for one in state.ended if one.rank == rank), None)
