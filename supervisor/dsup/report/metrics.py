"""The status document as metrics, named and measured by Prometheus' conventions. Pure.

What the document does not know has no sample: a gauge that is made up is worse than one
that is absent. docs/runbook.md has the table of all names.
"""

from __future__ import annotations

import calendar
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from dsup.core.state import Stage

Kind: TypeAlias = Literal["gauge", "counter"]
Labels: TypeAlias = tuple[tuple[str, str], ...]

_RANKS_MAX: Final = 4096
_KIB: Final = 1024.0
_PERCENT: Final = 0.01


class Family(NamedTuple):
    """One metric.

    Attributes:
        name: without the ``_total`` of a counter.
        samples: labels and value of each.
    """

    name: str
    kind: Kind
    help: str
    samples: tuple[tuple[Labels, float], ...]


_RUN: Final = ("run_id", "node", "program")
_WHOLE: Final[tuple[tuple[str, Kind, str, tuple[str, ...], float], ...]] = (
    ("ranks", "gauge", "Ranks of the run.", ("world_size",), 1.0),
    ("ranks_alive", "gauge", "Ranks that have a process.", ("alive",), 1.0),
    (
        "restarts_in_a_row",
        "gauge",
        "Restarts since the run was last healthy.",
        ("restarts", "used"),
        1.0,
    ),
    (
        "restarts_in_a_row_limit",
        "gauge",
        "So many restarts in a row are made at most.",
        ("restarts", "limit"),
        1.0,
    ),
    ("run_seconds", "gauge", "Since the launch.", ("run_s",), 1.0),
    ("attempt_seconds", "gauge", "Since the attempt began.", ("attempt_s",), 1.0),
    ("step", "gauge", "The last step that all ranks finished.", ("step",), 1.0),
    (
        "checkpoint_step",
        "gauge",
        "Step of the newest checkpoint known.",
        ("checkpoint", "step"),
        1.0,
    ),
    (
        "checkpoint_age_seconds",
        "gauge",
        "Since the newest checkpoint was complete.",
        ("checkpoint", "age_s"),
        1.0,
    ),
    (
        "pause_left_seconds",
        "gauge",
        "What is left of the pause before a restart.",
        ("pause_left_s",),
        1.0,
    ),
    (
        "memory_used_bytes",
        "gauge",
        "Memory of the cgroup that all ranks live in.",
        ("memory", "used_kb"),
        _KIB,
    ),
    (
        "memory_limit_bytes",
        "gauge",
        "Limit of that memory.",
        ("memory", "limit_kb"),
        _KIB,
    ),
    (
        "ettr_ratio",
        "gauge",
        "Share of the time that went into steps which count.",
        ("ledger", "ettr"),
        1.0,
    ),
    ("exit_code", "gauge", "Exit code of a run that is over.", ("exit", "code"), 1.0),
)
_OF_A_RANK: Final[tuple[tuple[str, str, str, float], ...]] = (
    ("heartbeat_age_seconds", "Since the rank's last heartbeat.", "beat_age_s", 1.0),
    ("step_age_seconds", "Since the rank's last step.", "step_age_s", 1.0),
    ("step", "The rank's last step.", "step", 1.0),
    (
        "resident_memory_bytes",
        "Resident memory of the rank and its helpers.",
        "rss_kb",
        _KIB,
    ),
    ("cpu_ratio", "Processors that the rank keeps busy.", "cpu_percent", _PERCENT),
)


def families(document: Mapping[str, Any], run: str) -> Iterator[Family]:
    """Yield the metrics of a status document; one without a sample is left out.

    Args:
        document: ``dsup.status/1``; empty where the agent could not be asked.
        run: what the run is known by. All samples have it as a label: a node may have
            several runs, and one file of each.
    """
    for family in _families(document):
        if family.samples:
            named = (((("run", run), *labels), v) for labels, v in family.samples)
            yield family._replace(samples=tuple(named))


def _families(document: Mapping[str, Any]) -> Iterator[Family]:
    live = document.get("outcome") == "running" and document.get("live") is True
    yield Family("up", "gauge", "1 while the run goes on.", (((), float(live)),))
    yield from (
        *_of_the_run(document),
        *_ledger(document),
        *_states(document),
        *_ranks(document),
    )


def _of_the_run(document: Mapping[str, Any]) -> Iterator[Family]:
    if document:
        info = tuple((key, str(document.get(key, ""))) for key in _RUN)
        yield Family("run_info", "gauge", "Which run it is.", ((info, 1.0),))
    at_s = _moment(document.get("at"))
    yield _single("status_timestamp_seconds", "When this was so.", at_s)
    attempt = _number(document.get("attempt"))
    told = None if attempt is None else attempt + 1
    yield _single("attempts", "Attempts that were begun.", told, "counter")
    causes = _mapping(document.get("failures"))
    yield Family(
        "failures",
        "counter",
        "Attempts that failed, by cause.",
        tuple(_labelled("cause", causes)),
    )
    rate = _number(document.get("steps_per_s"))
    step_s = 1.0 / rate if rate else None
    yield _single("step_seconds", "What a step takes, of the last ten seconds.", step_s)
    for name, kind, meaning, path, unit in _WHOLE:
        value = _number(_found(document, path))
        yield _single(name, meaning, None if value is None else value * unit, kind)


def _ledger(document: Mapping[str, Any]) -> Iterator[Family]:
    found = _mapping(document.get("ledger"))
    parts = {"productive": found.get("productive_s"), **_mapping(found.get("lost_s"))}
    meaning = "Where the time of the run went."
    samples = tuple(_labelled("kind", parts))
    yield Family("ledger_seconds", "gauge", meaning, samples)


def _states(document: Mapping[str, Any]) -> Iterator[Family]:
    if not document:
        return
    now = document.get("stage")
    stages = {stage.value: float(stage.value == now) for stage in Stage}
    meaning = "1 for the stage that the run is in."
    yield Family("stage", "gauge", meaning, tuple(_labelled("stage", stages)))
    stopping = document.get("stop") is not None
    yield _single("stopping", "1 while the run is being stopped.", float(stopping))


def _ranks(document: Mapping[str, Any]) -> Iterator[Family]:
    listed = document.get("ranks")
    rows = [
        row
        for row in (listed if isinstance(listed, list) else [])[:_RANKS_MAX]
        if isinstance(row, dict)
    ]
    for name, meaning, key, unit in _OF_A_RANK:
        samples = (
            ((("rank", str(row.get("rank"))),), value * unit)
            for row in rows
            if (value := _number(row.get(key))) is not None
        )
        yield Family(f"rank_{name}", "gauge", meaning, tuple(samples))
    healthy = (
        (_gpu(row), float(row["ecc"] == "ok"))
        for row in rows
        if row.get("ecc") in {"ok", "bad"}
    )
    meaning = "1 while the rank's GPU is healthy, by what NVML said last; 0: it is not."
    yield Family("rank_gpu_healthy", "gauge", meaning, tuple(healthy))


def _gpu(row: Mapping[str, Any]) -> Labels:
    return (("rank", str(row.get("rank"))), ("gpu", str(row.get("gpu"))))


def _single(
    name: str, meaning: str, value: float | None, kind: Kind = "gauge"
) -> Family:
    samples: Iterable[tuple[Labels, float]] = () if value is None else (((), value),)
    return Family(name, kind, meaning, tuple(samples))


def _labelled(
    label: str, values: Mapping[str, object]
) -> Iterator[tuple[Labels, float]]:
    for name, told in values.items():
        value = _number(told)
        if value is not None:
            yield ((label, name),), value


def _found(document: Mapping[str, Any], path: tuple[str, ...]) -> object:
    value: object = document
    for key in path:
        value = _mapping(value).get(key)
    return value


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _number(value: object) -> float | None:
    known = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if known else None  # type: ignore[arg-type]


def _moment(stamp: object) -> float | None:
    """Return an ISO time of the document as seconds since 1970, whole ones."""
    if not isinstance(stamp, str):
        return None
    try:
        return float(calendar.timegm(time.strptime(stamp[:19], "%Y-%m-%dT%H:%M:%S")))
    except ValueError:
        return None
