"""Samples of a running attempt: memory and progress of each rank, now and then.

They are one JSON object a line in ``attempt_N/samples.jsonl``, and nobody waits for
them: a missing or broken line costs a point of a curve.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from dsup.facts.fields import loads, number, word

SAMPLES_MAX: Final = 1200
"""So many are kept of an attempt, however long it lives."""

FILE_MAX_BYTES: Final = 64 * 1024 * 1024
_LINE_MAX_BYTES: Final = 1 << 20
_RANKS_MAX: Final = 4096
_KB_MAX: Final = 1 << 50
_STEP_MAX: Final = 1 << 53
_PHASE_MAX_CHARS: Final = 32


class Sample(NamedTuple):
    """How the ranks of a node stood at one moment.

    Attributes:
        at_s: agent clock, seconds.
        rss_kb: resident memory of each rank with its helpers, KiB; pages that several
            of them share are counted for each.
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


def encode(sample: Sample) -> bytes:
    """Return a sample as one line, its newline included."""
    row: dict[str, object] = {"at": round(sample.at_s, 3), "rss_kb": sample.rss_kb}
    for name in ("steps", "phases", "cgroup_kb", "limit_kb"):
        value = getattr(sample, name)
        if value or value == 0:
            row[name] = value
    return json.dumps(row, separators=(",", ":")).encode() + b"\n"


def decode(line: bytes) -> Sample | None:
    """Return the sample in a line; None where it holds none."""
    row = loads(line) if len(line) <= _LINE_MAX_BYTES else {}
    at_s = row.get("at")
    if not isinstance(at_s, int | float) or not math.isfinite(at_s):
        return None
    return Sample(
        float(at_s),
        _numbers(row.get("rss_kb"), _KB_MAX),
        _numbers(row.get("steps"), _STEP_MAX),
        {r: word(v, _PHASE_MAX_CHARS) for r, v in _by_rank(row.get("phases")).items()},
        number(row.get("cgroup_kb"), _KB_MAX),
        number(row.get("limit_kb"), _KB_MAX),
    )


def decode_all(lines: Iterable[bytes]) -> tuple[Sample, ...]:
    """Return the samples in lines, oldest first, the last ``SAMPLES_MAX`` of them."""
    found = [sample for line in lines if (sample := decode(line)) is not None]
    return tuple(sorted(found, key=lambda sample: sample.at_s)[-SAMPLES_MAX:])


def thinned(lines: list[bytes]) -> list[bytes]:
    """Return every other of the older lines, and the newer ones.

    The end of an attempt is what people look at; of its beginning the shape will do.
    """
    older = len(lines) * 3 // 4
    return [*lines[:older:2], *lines[older:]]


def _numbers(value: object, limit: int) -> dict[int, int]:
    found = {rank: number(v, limit) for rank, v in _by_rank(value).items()}
    return {rank: n for rank, n in found.items() if n is not None}


def _by_rank(value: object) -> dict[int, object]:
    if not isinstance(value, dict) or len(value) > _RANKS_MAX:
        return {}
    return {int(k): v for k, v in value.items() if k.isascii() and k.isdigit()}
