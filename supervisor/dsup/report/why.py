"""How a verdict came about, for ``--why``: who spoke, who would have, who had nothing.

Pure. A verdict is only as good as what could have been said against it, so that is
printed as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from dsup.core.verdict import Looked, Verdict
from dsup.report.columns import Columns
from dsup.report.panel import WIDTH
from dsup.report.sentences import ranks

_INDENT: Final = 10
_LINES_MAX: Final = 16


def why(verdict: Verdict, columns: Columns) -> tuple[str, ...]:
    """Return the lines that say how a verdict came about.

    Args:
        verdict: an old file has one that does not tell.
        columns: what the stream can show.
    """
    rows = [
        ("why", [_spoken(verdict)]),
        ("others", list(_others(verdict))),
        ("silent", [_silent(verdict)]),
        ("changes", _changes(verdict)),
    ]
    return tuple(line for key, said in rows for line in _row(key, said, columns))


def _spoken(verdict: Verdict) -> str:
    who = f" of {ranks(verdict.first_ranks)}" if verdict.first_ranks else ""
    sure = "" if verdict.cause == verdict.certainty else f", {verdict.certainty}"
    said = f"rule {verdict.rule} spoke: {verdict.cause}{who}{sure}"
    tried = [one.rule for one in verdict.looked]
    if not tried:
        return f"{said}; which others were tried was not kept"
    if verdict.rule not in tried:
        return f"{said}; none of {_rules(len(tried))} had anything to say"
    before = tried.index(verdict.rule)
    return f"{said}; {_rules(before)} tried before had nothing to say"


def _others(verdict: Verdict) -> Iterator[str]:
    for one in verdict.looked:
        if one.cause and one.rule != verdict.rule:
            yield f"{one.rule} would have said {_what(one)}"


def _what(one: Looked) -> str:
    who = f"of {ranks(one.first_ranks)}" if one.first_ranks else "of no rank by name"
    return f"{one.cause} {who}"


def _silent(verdict: Verdict) -> str:
    return ", ".join(one.rule for one in verdict.looked if not one.cause)


def _changes(verdict: Verdict) -> list[str]:
    if verdict.would_change or not verdict.looked:
        return list(verdict.would_change)
    return ["nothing that dsup could look for is missing"]


def _rules(number: int) -> str:
    return f"{number} rule{'' if number == 1 else 's'}"


def _row(key: str, said: Iterable[str], columns: Columns) -> Iterator[str]:
    """Yield lines, the key before the first; each text begins a line of its own."""
    label = key
    for text in filter(None, said):
        for line in columns.fit(text, WIDTH - _INDENT, _LINES_MAX):
            yield f" {label:{_INDENT - 1}}{line}"
            label = ""
