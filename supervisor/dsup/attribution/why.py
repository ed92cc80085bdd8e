"""What would change a verdict: evidence that was not there, one sentence each. Pure.

A sentence is only worth reading if what it asks for could make the answer another one:
who is proven guilty by the kernel stays so, whatever NVML would have said.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from dsup.attribution.accounts import Account, accounts
from dsup.attribution.timeline import Timeline
from dsup.attribution.wording import one_line
from dsup.core.verdict import Verdict
from dsup.facts.nvml import NO_GPU

CHANGES_MAX: Final = 12

_NAMED_MAX: Final = 8
_TEXT_MAX_CHARS: Final = 300
_OWN_WORD: Final = frozenset(
    {
        "checkpoint_error",
        "config_error",
        "cuda_oom",
        "import_error",
        "numeric_divergence",
        "port_in_use",
        "python_exception",
        "spawn_error",
    }
)
"""Causes that the rank told itself: neither kernel nor device would say otherwise."""

_OF_DEVICES: Final = frozenset(
    {
        "abort",
        "cuda_error",
        "device_assert",
        "gpu_hardware",
        "hang",
        "killed",
        "nccl_network",
        "segfault",
        "sigbus",
        "unknown",
        "unkillable",
    }
)
"""Causes behind which a lost GPU may hide."""

_OF_STEPS: Final = frozenset({"hang", "collective_mismatch", "unknown", "early_exit"})


def would_change(timeline: Timeline, verdict: Verdict) -> tuple[str, ...]:
    """Return which missing evidence could change a verdict, the weightiest first.

    Args:
        timeline: everything that is known of the attempt.
        verdict: what was made of it.
    """
    if verdict.rule == "obstacle":
        return ()
    known = accounts(timeline)
    said = (
        *_of_ranks(timeline, verdict, known),
        *_of_kernel(timeline, verdict),
        *_of_counters(timeline, verdict),
        *_of_devices(timeline, verdict),
        *_of_clock(timeline, verdict, known),
        *_of_steps(timeline, verdict),
    )
    return tuple(one_line(text, _TEXT_MAX_CHARS) for text in said)[:CHANGES_MAX]


def _of_ranks(
    timeline: Timeline, verdict: Verdict, known: tuple[Account, ...]
) -> Iterator[str]:
    """Yield which ranks nobody has heard of, or whose own words are missing."""
    if timeline.deafened and set(timeline.deafened) & set(verdict.first_ranks):
        yield f"of {_ranks(timeline.deafened)} only the first notes were read"
    if _is_sure(verdict):
        return
    absent = sorted(set(range(timeline.world_size)) - {a.rank for a in known})
    if absent:
        yield (
            f"{_ranks(absent)} left no trace here: how {_it(absent)} ended, or where "
            f"{_it(absent)} stood, could name another first rank"
        )
    failed = [a for a in known if a.own and a.failed]
    unseen = [a.rank for a in failed if a.rank not in timeline.words]
    if unseen:
        yield (
            f"the output of {_ranks(unseen)} was not seen: an exception in it could "
            "explain that end"
        )
    silent = [a.rank for a in failed if _is_silent(a) and a.rank not in unseen]
    others = [rank for rank in silent if rank not in verdict.first_ranks]
    if others:
        yield (
            f"{_ranks(others)} ended by {_itself(others)} and told no reason: a reason "
            "of its own would make it a candidate"
        )


def _of_kernel(timeline: Timeline, verdict: Verdict) -> Iterator[str]:
    if _is_told_by(verdict, "kernel") or verdict.cause in _OWN_WORD:
        return
    if timeline.kernel_log:
        yield (
            f"the kernel log is not complete ({timeline.kernel_log}): an OOM kill, a "
            "segfault or an Xid in it would be proof"
        )
    elif not timeline.host_pids:
        yield (
            "dsup ran in a pid namespace: the kernel's pids could not be matched with "
            "ranks, only its cgroups"
        )


def _of_counters(timeline: Timeline, verdict: Verdict) -> Iterator[str]:
    killed = verdict.status == -9 or verdict.cause in {"host_oom", "killed", "unknown"}  # noqa: PLR2004 (SIGKILL)
    if killed and not timeline.counters_read and not _is_told_by(verdict, "kernel"):
        yield (
            "the memory counters of the cgroup could not be read: a risen oom_kill "
            "would show that the kernel killed for memory"
        )


def _of_devices(timeline: Timeline, verdict: Verdict) -> Iterator[str]:
    if timeline.nvml not in {"", NO_GPU} and verdict.cause in _OF_DEVICES:
        yield (
            f"{timeline.nvml}; a lost GPU or an ECC error would be the cause of what "
            "is seen here"
        )
    unknown = sorted(
        health.gpu.number for health in timeline.gpu_health if health.state == "unknown"
    )
    if unknown and verdict.cause in _OF_DEVICES:
        yield f"the state of GPU {_listed(unknown)} could not be read"


def _of_clock(
    timeline: Timeline, verdict: Verdict, known: tuple[Account, ...]
) -> Iterator[str]:
    """Yield ranks whose ends the clock cannot tell from the first one's."""
    first = [a for a in known if a.rank in verdict.first_ranks]
    if not first or _is_alike(timeline, verdict):
        return
    limit_s = min(a.until_s for a in first)
    equals = [
        a.rank
        for a in known
        if a.own and a.strong and a.rank not in verdict.first_ranks
        if a.from_s <= limit_s
    ]
    if equals:
        yield (
            f"{_ranks(equals)} ended within the same blind time of the clock as "
            f"{_ranks(a.rank for a in first)}: a finer time could put it first"
        )
    elif len(first) > 1:
        yield (
            f"{_ranks(a.rank for a in first)} ended too close together to be told "
            "apart: a finer time would name one of them"
        )


def _of_steps(timeline: Timeline, verdict: Verdict) -> Iterator[str]:
    if verdict.cause in _OF_STEPS and not timeline.beats and not _is_sure(verdict):
        yield (
            "no rank told its steps: with dsup_runtime in the training script the one "
            "that stood still first would be known"
        )


def _is_sure(verdict: Verdict) -> bool:
    return verdict.certainty == "proven"


def _is_alike(timeline: Timeline, verdict: Verdict) -> bool:
    """Return whether every rank failed alike, so that none of them is the first."""
    return len(verdict.first_ranks) == timeline.world_size


def _is_told_by(verdict: Verdict, source: str) -> bool:
    return _is_sure(verdict) and any(e.source == source for e in verdict.evidence[:1])


def _is_silent(account: Account) -> bool:
    return account.sort == "exit" and account.told is None


def _ranks(numbers: Iterable[int]) -> str:
    known = sorted(set(numbers))
    return f"rank{'s' if len(known) > 1 else ''} {_listed(known)}"


def _listed(numbers: list[int]) -> str:
    more = f" and {len(numbers) - _NAMED_MAX} more" if len(numbers) > _NAMED_MAX else ""
    return ", ".join(map(str, numbers[:_NAMED_MAX])) + more


def _it(numbers: list[int]) -> str:
    return "it" if len(numbers) == 1 else "they"


def _itself(numbers: list[int]) -> str:
    return "itself" if len(numbers) == 1 else "themselves"
