"""A diagnosis as text: the panel first, below it what those need who read on."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from dsup.cli.answer import Case, Diagnosis
from dsup.cli.foreign import STRANGER
from dsup.core.output import Tone
from dsup.core.verdict import Verdict
from dsup.report.columns import Columns
from dsup.report.compared import again, compared
from dsup.report.course import course
from dsup.report.html import story
from dsup.report.panel import WIDTH, toned
from dsup.report.sentences import clock, ranks, told
from dsup.report.why import why


class Wish(NamedTuple):
    """What is to be shown.

    Attributes:
        everything: a panel for each attempt, not for the last one alone.
        why: how the rules decided.
        unicode: the stream shows more than ASCII.
    """

    everything: bool = False
    why: bool = False
    unicode: bool = True


def shown(
    found: Sequence[Diagnosis], remarks: Sequence[str], wish: Wish
) -> Iterator[tuple[str, Tone]]:
    """Yield the lines of an answer, each with how grave it is."""
    columns = Columns(wish.unicode)
    for number, one in enumerate(found):
        if number:
            yield "", "plain"
        yield from _one(one, columns, wish)
    for remark in remarks:
        yield columns.legible(remark), "plain"


def panel_of(found: Diagnosis) -> tuple[str, ...]:
    """Return the last panel, as it is copied and pasted; empty where nothing failed."""
    if not found.cases:
        return ()
    case = found.cases[-1]
    setting = case.setting(unicode=True, again=again(found.verdicts))
    return tuple(line for line, _ in toned(case.verdict, setting))


def _one(found: Diagnosis, columns: Columns, wish: Wish) -> Iterator[tuple[str, Tone]]:
    yield columns.legible(_head(found)), "plain"
    courses = _courses(found, columns)
    for case in found.cases:
        if not wish.everything and case is not found.cases[-1]:
            yield _earlier(case, found.cases[-1].verdict, columns), "plain"
            continue
        repeated = again(found.verdicts) if case is found.cases[-1] else ""
        yield from toned(case.verdict, case.setting(columns.unicode, repeated))
        below = courses.get(case.verdict.attempt, ())
        for line in (*below, *_why(case, columns, wish)):
            yield line, "plain"
    alike = compared(found.verdicts)
    last = found.cases[-1].next_text if found.cases else ""
    outcome = "" if found.outcome == last else found.outcome
    for text in filter(None, (alike, *found.remarks, outcome)):
        yield columns.legible(text), "plain"


def _earlier(case: Case, last: Verdict, columns: Columns) -> str:
    """Return an earlier attempt in one line: most people ask about the last one."""
    verdict = case.verdict
    when = ""
    if math.isfinite(verdict.at_s):
        when = f", {clock(verdict.at_s, case.offset_s)}"
    said = told(verdict)
    if verdict.signature and verdict.signature == last.signature:
        who = f" of {ranks(verdict.first_ranks)}" if verdict.first_ranks else ""
        said = f"the same ({verdict.cause}{who})"
    return columns.fit(f"attempt {verdict.attempt}{when}: {said}", WIDTH, 1)[0]


def _courses(found: Diagnosis, columns: Columns) -> dict[int, tuple[str, ...]]:
    """Return what happened when, for each attempt of a run."""
    basis = found.basis
    if basis is None:
        return {}
    verdicts = [
        story.Told(story.shifted(case.verdict, case.offset_s)) for case in found.cases
    ]
    run = story.Run(
        path=found.path,
        known=basis.files.known,
        lines=basis.files.lines,
        offset_s=basis.offset_s,
        told=verdicts,
        outcome=found.outcome,
        made_s=0.0,
    )
    attempts = story.of_run(basis.told, run).attempts
    return {attempt.number: course(attempt, columns) for attempt in attempts}


def _why(case: Case, columns: Columns, wish: Wish) -> tuple[str, ...]:
    return why(case.verdict, columns) if wish.why else ()


def _head(found: Diagnosis) -> str:
    known = []
    if found.world_size:
        known.append(f"{found.world_size} rank{'' if found.world_size == 1 else 's'}")
        if found.node:
            known[0] += f" on {found.node}"
    elif found.node and found.kind == "run":
        known.append(f"on {found.node}")
    if found.kind == "logs":
        known.append(f"log of {found.launcher or STRANGER}")
    if found.started_s is not None:
        stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(found.started_s))
        known.append(f"started {stamp} UTC")
    return f"{found.name}: {', '.join(known)}" if known else found.name
