"""``dsup diagnose --html``: the story of a diagnosis, and the page that tells it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from dsup import __version__
from dsup.cli.answer import Case, Diagnosis, RunBasis
from dsup.cli.foreign import STRANGER
from dsup.cli.page_output import Output, around_proof, last_output
from dsup.cli.safe_files import files_below, read_below
from dsup.cli.shown import panel_of
from dsup.core.verdict import Verdict
from dsup.facts.samples import FILE_MAX_BYTES, Sample, decode_all
from dsup.postmortem import LogFinding
from dsup.report.html import page, story
from dsup.report.html.story import Run, Stack, Story, Told
from dsup.report.masked import masked
from dsup_runtime import contract

_TAIL_BYTES: Final = 64 << 10
_STACKS_MAX: Final = 64
_RANKS_MAX: Final = 4096


def html(found: Diagnosis, own: Sequence[bytes] = ()) -> str:
    """Return the page of one run, or of one pile of logs.

    Args:
        found: what is known of it.
        own: values of secrets that are known here.
    """
    return page.render(_story(found, _Cleaner(own)))


class _Cleaner:
    """Takes secrets out of texts."""

    def __init__(self, own: Sequence[bytes]) -> None:
        self._own = own

    def text(self, text: str) -> str:
        """Return a text without secrets."""
        raw, hidden = masked(text.encode(errors="surrogatepass"), self._own)
        return raw.decode(errors="replace") if hidden else text

    def texts(self, texts: Iterable[str]) -> tuple[str, ...]:
        """Return texts without secrets."""
        return tuple(map(self.text, texts))

    def verdict(self, verdict: Verdict) -> Verdict:
        """Return a verdict without secrets."""
        evidence = (one._replace(text=self.text(one.text)) for one in verdict.evidence)
        return verdict._replace(
            summary=self.text(verdict.summary), evidence=tuple(evidence)
        )


def _story(found: Diagnosis, clean: _Cleaner) -> Story:
    panel = clean.texts(panel_of(found))
    remarks = clean.texts(found.remarks)
    made_s = time.clock_gettime(time.CLOCK_REALTIME)
    if found.basis is not None:
        return _of_run(found, found.basis, clean, made_s)
    if not found.cases:
        return Story(
            name=found.name,
            attempts=(),
            told=(),
            made_s=made_s,
            outcome=next(iter(remarks), f"{found.name} tells of no failure"),
            launcher=found.launcher or STRANGER,
            remarks=remarks[1:],
            directory=found.bundle or found.path,
        )
    findings = _findings(found)
    told = [one._replace(verdict=clean.verdict(one.verdict)) for one in findings]
    output = around_proof(found.findings[-1].verdict) if found.findings else Output()
    place = told[-1].verdict.evidence[0].file if output.lines else ""
    frame = story.Frame(
        name=found.name,
        made_s=made_s,
        panel=panel,
        remarks=remarks,
        output_place=f"{place}, {output.place}" if place else "",
        output=clean.texts(output.lines),
        bundle=found.bundle,
        zone=found.cases[-1].zone,
    )
    return story.of_log(told, frame=frame)


def _findings(found: Diagnosis) -> list[LogFinding]:
    """Return what logs tell, in the words of the cases: these know of a bundle."""
    if len(found.findings) != len(found.cases):
        return [_finding(case) for case in found.cases]
    pairs = zip(found.findings, found.cases, strict=True)
    return [one._replace(verdict=case.verdict) for one, case in pairs]


def _finding(case: Case) -> LogFinding:
    nodes = case.nodes or ((case.node,) if case.node else ())
    return LogFinding(case.verdict, nodes, case.launcher or STRANGER)


def _of_run(found: Diagnosis, basis: RunBasis, clean: _Cleaner, made_s: float) -> Story:
    output = last_output(found)
    run = Run(
        path=found.path,
        known=basis.files.known,
        lines=basis.files.lines,
        offset_s=basis.offset_s,
        told=[_told(case, clean) for case in found.cases],
        outcome=found.outcome,
        made_s=made_s,
        dsup=__version__,
        samples=dict(_samples(found.path)),
        panel=clean.texts(panel_of(found)),
        output_place=output.place,
        output=clean.text("\n".join(output.lines)).splitlines(),
        stacks=[Stack(rank, clean.text(text)) for rank, text in _stacks(found)],
        remarks=clean.texts(found.remarks),
        bundle=found.bundle,
        running=found.state == "running",
    )
    return story.of_run(basis.told, run)._replace(name=found.name)


def _told(case: Case, clean: _Cleaner) -> Told:
    verdict = story.shifted(case.verdict, case.offset_s)
    return Told(clean.verdict(verdict), case.node, case.next_text, case.ended)


def _samples(path: str) -> Iterator[tuple[int, tuple[Sample, ...]]]:
    for below, _ in files_below(path):
        parent, name = os.path.split(below)
        number = parent.removeprefix("attempt_")
        numbered = number.isascii() and number.isdigit()
        if name != contract.SAMPLES_FILE or not numbered:
            continue
        try:
            raw = read_below(path, below, FILE_MAX_BYTES)
        except OSError:
            continue
        yield int(number[:9]), decode_all(raw.split(b"\n"))


def _stacks(found: Diagnosis) -> Iterator[tuple[int, str]]:
    """Yield the stacks that were taken in the last failed attempt."""
    if not found.cases:
        return
    verdict = found.cases[-1].verdict
    named = [*verdict.first_ranks, *(one.rank for one in verdict.victims)]
    ranks = dict.fromkeys([*named, *range(min(found.world_size, _RANKS_MAX))])
    taken = 0
    for rank in ranks:
        directory = contract.rank_dir("", verdict.attempt, rank)
        try:
            raw = read_below(
                found.path, f"{directory}/{contract.STACKS_FILE}", _TAIL_BYTES
            )
        except OSError:
            continue
        if raw.strip() and taken < _STACKS_MAX:
            taken += 1
            yield rank, raw.decode(errors="backslashreplace")
