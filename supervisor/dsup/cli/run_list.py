"""The runs that are kept, each as one row."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from dsup.cli.find_run import Run, all_runs
from dsup.cli.run_files import goes_on, read_run, told_as
from dsup.cli.run_status import ask, from_files
from dsup.control_client import NoAnswerError
from dsup.core.errors import DsupError
from dsup.core.printable import printable
from dsup.report.snapshot import text

SCHEMA: Final = "dsup.runs/1"
ASK_S: Final = 1.0
"""So long a run's agent may take to answer; its files answer else."""

_HEAD: Final = ("run", "state", "attempts", "step", "began", "lasted", "verdict")
_MINUTE_S: Final = 60
_HOUR_S: Final = 3600
_DAY_S: Final = 86_400


def listed(
    environment: Mapping[str, str], most: int | None
) -> tuple[list[dict[str, Any]], int]:
    """Return the rows of runs, the newest first, and how many were left out.

    Args:
        environment: names the places where runs are kept.
        most: so many of the newest, and all that go on; None for all.
    """
    found = all_runs(environment)
    if most is None:
        return [_row(run) for run in found], 0
    shown = [*found[:most], *(run for run in found[most:] if _goes_on(run))]
    return [_row(run) for run in shown], len(found) - len(shown)


def as_json(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return rows for programs."""
    return json.dumps({"schema": SCHEMA, "runs": rows}, indent=1)


def table(rows: Sequence[Mapping[str, Any]], width: int | None) -> Iterator[str]:
    """Yield rows as lines for people, a head before them; nothing of no runs.

    Args:
        rows: from ``listed``.
        width: of the terminal; None where lines may be as long as they like.
    """
    if not rows:
        return
    nodes = len({row["node"] for row in rows if row["node"]}) > 1
    cells = [_HEAD, *map(_cells, rows)]
    if nodes:
        told = ("node", *(printable(row["node"] or "?") for row in rows))
        cells = [
            (run, node, *rest) for node, (run, *rest) in zip(told, cells, strict=True)
        ]
    *columns, _ = (max(map(len, column)) for column in zip(*cells, strict=True))
    for *parts, last in cells:
        padded = (part.ljust(wide) for part, wide in zip(parts, columns, strict=True))
        yield "  ".join((*padded, last)).rstrip()[:width]


def _row(run: Run) -> dict[str, Any]:
    """Return what is known of a run; one that cannot be read has its name."""
    known: dict[str, Any] = {"run": run.name, "run_dir": run.path, "began": run.second}
    try:
        with told_as("list"):
            told = _told(run.path)
    except DsupError as error:
        empty = dict.fromkeys(("node", "program", "outcome", "attempts", "step"))
        rest = {"lasted_s": None, "verdict": None, "exit": None, "live": False}
        return {**known, **empty, **rest, "error": text(str(error))}
    failed = told.get("attempts") or [None]
    unsure = told.get("outcome") == "running" and not told.get("live")
    return {
        **known,
        "node": told.get("node"),
        "program": told.get("program"),
        "outcome": told.get("outcome"),
        "live": told.get("live"),
        "attempts": _next(told.get("attempt")),
        "step": told.get("step"),
        "lasted_s": None if unsure else told.get("run_s"),
        "verdict": failed[-1],
        "exit": told.get("exit"),
    }


def _told(path: str) -> Mapping[str, Any]:
    """Return a run's status document, asked of an agent that may be there."""
    files = read_run(path)
    if files.alive is not False:
        try:
            return ask(path, {"ask": "status"}, ASK_S)
        except NoAnswerError:
            return from_files(read_run(path))
    return from_files(files)


def _goes_on(run: Run) -> bool:
    """Return whether somebody writes a run's journal."""
    try:
        return bool(goes_on(run.path))
    except OSError:
        return False


def _next(attempt: object) -> int | None:
    return attempt + 1 if isinstance(attempt, int) else None


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    verdict, step = row["verdict"], row["step"]
    said = verdict["summary"] if verdict else row.get("error", "")
    parts = (
        row["run"],
        row["outcome"] or "?",
        str(row["attempts"] or "?"),
        f"{step:,}" if isinstance(step, int) else "-",
        _began(row["began"]),
        lasted(row["lasted_s"]),
        said or "-",
    )
    return tuple(map(printable, parts))


def _began(stamp: str) -> str:
    """Return ``2026-11-30 02:27`` for the beginning of a run's name."""
    return f"{stamp[:4]}-{stamp[4:6]}-{stamp[6:8]} {stamp[9:11]}:{stamp[11:13]}"


def lasted(length_s: float | None) -> str:
    """Return a length of time in its two greatest units; ``?`` if it is unknown."""
    if length_s is None:
        return "?"
    whole = int(length_s)
    if whole < _MINUTE_S:
        return f"{whole} s"
    if whole < _HOUR_S:
        return f"{whole // _MINUTE_S} min {whole % _MINUTE_S} s"
    if whole < _DAY_S:
        return f"{whole // _HOUR_S} h {whole % _HOUR_S // _MINUTE_S} min"
    return f"{whole // _DAY_S} d {whole % _DAY_S // _HOUR_S} h"
