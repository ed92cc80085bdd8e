"""What a verdict on a log lacks: evidence that could change it, and where it is."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Final

from dsup.attribution.logged.signs import Reading
from dsup.attribution.wording import listed, one_line
from dsup.core.verdict import Verdict
from dsup.facts.logs.said import Error

_KERNEL: Final = frozenset(
    {"killed", "host_oom", "cuda_error", "gpu_hardware", "sigbus", "segfault"}
)
_WORDLESS: Final = frozenset({"summary", "ended_by_launcher"})
_STACKS: Final = frozenset({"hang", "collective_mismatch"})
_DATED_S: Final = 1e8
"""Later than this, a time stamp has a date."""


def would_change(log: Reading, verdict: Verdict) -> tuple[str, ...]:
    """Return evidence that is missing, one sentence each."""
    said: list[str] = []
    cut = any(isinstance(s.fact, Error) and not s.fact.type for s in log.leaders[:1])
    if cut:
        said.append("the end of the traceback: the log was cut before the exception")
    said += _of_silent(log, verdict)
    if verdict.rule == "quoted":
        return (_run(log),)
    if verdict.rule in _WORDLESS:
        said.append("the logs of the ranks, which torchrun keeps with --log-dir DIR")
    elif not verdict.first_ranks and _has_nameless(log):
        said.append(
            "a log in which each line bears its rank (torchrun --log-dir, srun --label)"
        )
    if verdict.cause in _KERNEL and verdict.certainty != "proven":
        said.append(f"the kernel log of {_node(log, verdict)}{_around(verdict)}")
    if verdict.cause in _STACKS and verdict.certainty != "proven":
        said.append("stacks or a flight-recorder dump of each rank, taken in the wait")
    return tuple(said)


def _run(log: Reading) -> str:
    where = log.attempt.directory
    return f"the run itself: dsup diagnose {where or 'RUN'}, on its machine"


def _has_nameless(log: Reading) -> bool:
    """Return whether a statement that was weighed bears no rank."""
    facts = (*(sign.fact for sign in log.signs), *log.lost, *log.ends)
    return any(fact.place.rank is None for fact in facts)


def _of_silent(log: Reading, verdict: Verdict) -> list[str]:
    """Return whose log is missing, where ranks say nothing at all."""
    world = log.attempt.world_size
    if world is None or verdict.rule not in {"silent", "only_victims", "peer_gone"}:
        return []
    spoke = {f.place.rank for f in log.lost}
    silent = [rank for rank in range(min(world, 65536)) if rank not in spoke]
    if not silent:
        return []
    last = log.attempt.progress.get(silent[0])
    after = f" after step {last.step}" if last and last.step is not None else ""
    name = f"rank{'s' if len(silent) > 1 else ''} {_listed(silent)}"
    return [f"the log of {name}: no word of an end{after}"]


def _listed(ranks: list[int]) -> str:
    shown = listed(ranks[:8]) if len(ranks) <= 8 else ""  # noqa: PLR2004
    return shown or f"{ranks[0]} and {len(ranks) - 1} others"


def _node(log: Reading, verdict: Verdict) -> str:
    for sign in log.signs:
        node = sign.fact.place.node
        if node and (sign.rank in verdict.first_ranks or not verdict.first_ranks):
            return f"node {one_line(node, 60)}"
    return "its node"


def _around(verdict: Verdict) -> str:
    if not math.isfinite(verdict.at_s):
        return " at that time"
    at = datetime.fromtimestamp(verdict.at_s % 4e9, UTC)
    shown = f"{at:%H:%M:%S}" if verdict.at_s < _DATED_S else f"{at:%Y-%m-%d %H:%M:%S}"
    return f" around {shown}"
