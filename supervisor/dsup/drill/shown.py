"""A drill's results as people and programs read them. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from dsup.core.printable import printable
from dsup.drill.drill import Result
from dsup.drill.judging import Seen, named
from dsup.drill.scenarios import Expected, Scenario

SCHEMA: Final = "dsup.drill/1"

_HEAD: Final = (
    *("scenario", "expected", "verdict", "certainty"),
    *("noticed", "gone", "back", "result"),
)
_WIDTHS: Final = (15, 24, 24, 9, 7, 7, 7, 6)
_MS: Final = 1000


def head() -> str:
    """Return the line above the table."""
    return _line(_HEAD)


def rows(result: Result) -> Iterator[str]:
    """Yield the lines of one result: that of the table, and what is wrong."""
    seen, scenario = result.seen, result.scenario
    word = seen.word if seen else None
    yield _line(
        (
            scenario.name,
            _told(scenario.expected.cause, _ranks(scenario.expected)),
            _told(word.cause, word.ranks) if word else "-",
            word.certainty if word else "-",
            *_times(seen),
            {"passed": "pass", "failed": "FAIL", "skipped": "skip"}[result.outcome],
        )
    )
    if result.skipped:
        yield f"  skipped: {printable(result.skipped)}"
    for miss in result.misses:
        yield f"  {printable(miss)}"
    if result.misses and word:
        yield f"  dsup said: {printable(word.summary)}"
    if result.home:
        yield f"  kept: {printable(result.home)}"


def sentence(results: Sequence[Result], took_s: float) -> str:
    """Return what came of a drill, as one sentence."""
    counts = {
        name: [r.scenario.name for r in results if r.outcome == name]
        for name in ("passed", "failed", "skipped")
    }
    tried = len(results) - len(counts["skipped"])
    parts = [f"{len(counts['passed'])} of {tried} scenarios passed in {took_s:.0f} s"]
    parts += [
        f"{name}: {', '.join(counts[name])}"
        for name in ("failed", "skipped")
        if counts[name]
    ]
    return "; ".join(parts)


def listed(scenarios: Sequence[Scenario]) -> Iterator[str]:
    """Yield what there is to drill: what is done, what must come of it, its needs."""
    for scenario in scenarios:
        expected = scenario.expected
        yield f"{scenario.name:<{_WIDTHS[0]}}  {scenario.injected}"
        told = _told(expected.cause, _ranks(expected))
        yield f"{'':<{_WIDTHS[0]}}  expected: {told}, {_resumes(scenario)}"
        if scenario.needs:
            yield f"{'':<{_WIDTHS[0]}}  needs {scenario.needs}"


def document(results: Sequence[Result], took_s: float) -> dict[str, Any]:
    """Return a drill as programs read it."""
    return {
        "schema": SCHEMA,
        "passed": all(result.outcome != "failed" for result in results),
        "took_s": round(took_s, 3),
        "scenarios": [_fields(result) for result in results],
    }


def catalogue(scenarios: Sequence[Scenario]) -> list[dict[str, Any]]:
    """Return what there is to drill, as programs read it."""
    return [
        {
            "name": one.name,
            "injected": one.injected,
            "expected": one.expected._asdict(),
            "needs": one.needs,
        }
        for one in scenarios
    ]


def _fields(result: Result) -> dict[str, Any]:
    seen = result.seen
    [known] = catalogue([result.scenario])
    word = seen.word if seen else None
    return {
        **known,
        "outcome": result.outcome,
        "verdict": {
            "cause": word.cause,
            "first_ranks": word.ranks,
            "certainty": word.certainty,
            "summary": word.summary,
        }
        if word
        else None,
        "times_s": seen.times._asdict() if seen else None,
        "resumed": seen.resumed if seen else None,
        "misses": result.misses,
        "skipped": result.skipped,
        "took_s": round(result.took_s, 3),
        "home": result.home,
    }


def _resumes(scenario: Scenario) -> str:
    if scenario.expected.resumes == "before":
        return "training goes on from the checkpoint before"
    again = "launched again" if scenario.harmed != "rank" else "restarted"
    return f"{again}, training goes on from the newest checkpoint"


def _ranks(expected: Expected) -> tuple[int, ...]:
    return () if expected.rank is None else (expected.rank,)


def _told(cause: str, ranks: tuple[int, ...]) -> str:
    return f"{cause}, {named(ranks)}" if ranks else cause


def _times(seen: Seen | None) -> tuple[str, ...]:
    return tuple(map(_length, seen.times)) if seen else ("-",) * 3


def _length(length_s: float | None) -> str:
    if length_s is None:
        return "-"
    if length_s < 1:
        return f"{length_s * _MS:.0f} ms"
    return f"{length_s:.1f} s"


def _line(cells: Sequence[str]) -> str:
    padded = (cell.ljust(wide) for cell, wide in zip(cells, _WIDTHS, strict=True))
    return "  ".join(padded).rstrip()
