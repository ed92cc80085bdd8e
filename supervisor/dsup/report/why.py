"""How a verdict came about, for ``--why``: who spoke, who would have, who had nothing.

Pure. A verdict is only as good as what could have been said against it, so that is
printed as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
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
    before, after = _parted(verdict)
    rows = [
        (
            "why",
            [_spoken(verdict), _explained(verdict.rule)],
        ),
        ("before", _told("asked before it", before)),
        ("after", _told("asked after it", after)),
        ("missing", _changes(verdict)),
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
    return said


def _explained(rule: str) -> str:
    """Return where a rule is explained; empty for what is none, such as a journal."""
    from dsup.attribution.logged.rules import RULES as LOG_RULES
    from dsup.attribution.rules import RULES

    known = {one.__name__ for one in (*RULES, *LOG_RULES)}
    return f"(dsup explain {rule} tells what it looks for)" if rule in known else ""


def _parted(verdict: Verdict) -> tuple[list[Looked], list[Looked]]:
    """Return the rules that were asked before the one that spoke, and after it."""
    tried = [one.rule for one in verdict.looked]
    at = tried.index(verdict.rule) if verdict.rule in tried else len(tried)
    return [*verdict.looked[:at]], [*verdict.looked[at + 1 :]]


def _told(when: str, some: Sequence[Looked]) -> list[str]:
    """Return what rules had to say, those with nothing to say together."""
    silent = [one.rule for one in some if not one.cause]
    said = [f"{one.rule} would have said {_what(one)}" for one in some if one.cause]
    if silent:
        said.append(f"{when}, and silent: {', '.join(silent)}")
    return said


def _what(one: Looked) -> str:
    who = f"of {ranks(one.first_ranks)}" if one.first_ranks else "of no rank by name"
    return f"{one.cause} {who}"


def _changes(verdict: Verdict) -> list[str]:
    if verdict.would_change or not verdict.looked:
        return list(verdict.would_change)
    return ["nothing that dsup could look for, and that could change the answer"]


def _rules(number: int) -> str:
    return f"{number} rule{'' if number == 1 else 's'}"


def _row(key: str, said: Iterable[str], columns: Columns) -> Iterator[str]:
    """Yield lines, the key before the first; each text begins a line of its own."""
    label = key
    for text in filter(None, said):
        for line in columns.fit(text, WIDTH - _INDENT, _LINES_MAX):
            yield f" {label:{_INDENT - 1}}{line}"
            label = ""
