"""Findings as lines: by group, what is well in one line, the others with their fix."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from dsup.checkup.finding import GROUPS, Finding, State, verdict
from dsup.core.output import Tone
from dsup.report.columns import Columns, wrap

SCHEMA: Final = "dsup.doctor/1"

_TONES: Final[Mapping[State, Tone]] = {
    "ok": "plain",
    "unknown": "plain",
    "warn": "warning",
    "bad": "failure",
}
_STATES: Final[tuple[State, ...]] = ("bad", "warn", "unknown", "ok")
_STATE_CELLS: Final = 9
_NAME_CELLS: Final = 18
_TEXT_CELLS_MIN: Final = 40


def lines(
    findings: Sequence[Finding], width: int | None, *, everything: bool, unicode: bool
) -> Iterator[tuple[str, Tone]]:
    """Yield the lines of an answer, each with how grave it is.

    Args:
        findings: in the order of their groups.
        width: of the terminal; None where lines are not wrapped.
        everything: what is well, too.
        unicode: the stream shows more than ASCII.
    """
    columns = Columns(unicode)
    for group in GROUPS:
        own = [finding for finding in findings if finding.group == group]
        if not own:
            continue
        yield f"{group}: {_counted(own)}", "plain"
        for finding in own:
            if everything or finding.state != "ok":
                yield from _one(finding, columns, width)
    said = verdict(findings)
    yield "", "plain"
    yield columns.legible(said.text), _TONES[said.state]


def short(finding: Finding) -> str:
    """Return a finding in one line, for a log."""
    fix = f" ({finding.fix})" if finding.fix else ""
    return f"{finding.check}: {finding.text}{fix}"


def document(findings: Sequence[Finding], node: str, at: str) -> dict[str, Any]:
    """Return findings for programs.

    Args:
        findings: in the order of their groups.
        node: its name.
        at: when, ISO 8601.
    """
    said = verdict(findings)
    return {
        "schema": SCHEMA,
        "node": node,
        "at": at,
        "fit": said.state != "bad",
        "summary": said.text,
        "findings": [finding._asdict() for finding in findings],
    }


def _counted(own: Sequence[Finding]) -> str:
    count = Counter(finding.state for finding in own)
    return ", ".join(f"{count[state]} {state}" for state in _STATES if count[state])


def _one(
    finding: Finding, columns: Columns, width: int | None
) -> Iterator[tuple[str, Tone]]:
    lead = f"  {finding.state:<{_STATE_CELLS}}{finding.check:<{_NAME_CELLS}}"
    rest = " " * len(lead)
    tone = _TONES[finding.state]
    for number, row in enumerate(_rows(finding.text, columns, width, len(lead))):
        yield f"{rest if number else lead}{row}", tone
    fix = f"fix: {finding.fix}" if finding.fix else ""
    for row in _rows(fix, columns, width, len(lead)) if fix else ():
        yield f"{rest}{row}", "plain"


def _rows(text: str, columns: Columns, width: int | None, lead: int) -> list[str]:
    whole = columns.legible(text)
    if width is None:
        return [whole]
    return wrap(whole, max(width - lead, _TEXT_CELLS_MIN))
