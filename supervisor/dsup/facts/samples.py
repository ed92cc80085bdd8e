"""Samples of a running attempt: memory and progress of each rank, now and then.

They are one JSON object a line in ``attempt_N/samples.jsonl``, and nobody waits for
them: a missing or broken line costs a point of a curve.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Sample(NamedTuple):
    """How the ranks of a node stood at one moment.

    Attributes:
        at_s: agent clock, seconds.
        rss_kb: resident memory of each rank with its helpers, KiB.
        steps: last step of each rank that tells its steps.
        phases: phase of each rank that tells it.
        cgroup_kb: memory in use of the cgroup that all ranks live in; None if unknown.
        limit_kb: its limit; None for none.
    """

    at_s: float
    rss_kb: Mapping[int, int]
    steps: Mapping[int, int] = {}
    phases: Mapping[int, str] = {}
    cgroup_kb: int | None = None
    limit_kb: int | None = None
