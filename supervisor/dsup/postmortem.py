"""The post-mortem of logs that another launcher left: one verdict for each attempt."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from dsup.attribution.logged.judge import judge_log
from dsup.attribution.logged.places import everything
from dsup.core.errors import SpecError
from dsup.core.verdict import Evidence, Verdict
from dsup.edges.log_files import LogFiles
from dsup.facts.logs import attempts, extract, streams
from dsup.facts.logs.line import LogLine
from dsup.facts.logs.said import LoggedAttempt
from dsup.facts.logs.stamps import DATED_S


class LogFinding(NamedTuple):
    """One attempt or run that logs tell of.

    Attributes:
        verdict: ``at_s`` is CLOCK_REALTIME, NaN where the log has no time; evidence has
            file and line of the log.
        nodes: where its first ranks ran, as far as the log tells.
        launcher: such as ``torchrun``; empty if unknown.
        world_size: None if unknown.
        spans: ``(rank, first, last)`` of each rank's lines, seconds; for a timeline.
    """

    verdict: Verdict
    nodes: tuple[str, ...] = ()
    launcher: str = ""
    world_size: int | None = None
    spans: tuple[tuple[int, float, float], ...] = ()


class LogDiagnosis(NamedTuple):
    """What logs say.

    Attributes:
        findings: in the order of the log; never empty: a log that says nothing has one
            verdict, ``unknown``.
        remarks: what could not be read, and why.
        bytes_read: how much of the files was looked at.
    """

    findings: tuple[LogFinding, ...]
    remarks: tuple[str, ...] = ()
    bytes_read: int = 0


def diagnose_logs(paths: Sequence[str]) -> LogDiagnosis:
    """Return what log files say; directories are searched for logs.

    Several files of one attempt, per rank or per node, are one finding.

    Args:
        paths: regular files, directories, FIFOs, or ``-`` for standard input.

    Raises:
        DsupError: no path can be read.
    """
    files = LogFiles(paths)
    findings = tuple(_findings(streams.lines(files.lines())))
    remarks = tuple(files.remarks)
    if not files.bytes_read:
        why = "; ".join(remarks) or "there is nothing to read (name a log)"
        raise SpecError(f"cannot diagnose these logs: {why}")
    if not findings:
        findings = (LogFinding(judge_log(LoggedAttempt(0))),)
    return LogDiagnosis(findings, remarks, files.bytes_read)


def _findings(lines: Iterable[LogLine]) -> Iterator[LogFinding]:
    for batch in attempts.split(lines):
        told = extract.attempt(batch.lines, batch.number)
        verdict = judge_log(told)
        yield LogFinding(
            _dated(verdict),
            _nodes(told, verdict),
            told.launcher,
            told.world_size,
            _spans(batch.lines),
        )


def _dated(verdict: Verdict) -> Verdict:
    """Return a verdict without times that have no date: they are no CLOCK_REALTIME."""
    at_s = verdict.at_s if verdict.at_s >= DATED_S else math.nan
    evidence = tuple(_dated_line(line) for line in verdict.evidence)
    return verdict._replace(at_s=at_s, evidence=evidence)


def _dated_line(line: Evidence) -> Evidence:
    dated = line.at_s is not None and line.at_s >= DATED_S
    return line if dated else line._replace(at_s=None)


def _nodes(told: LoggedAttempt, verdict: Verdict) -> tuple[str, ...]:
    """Return the nodes of the first ranks; without ranks, that of the first proof."""
    found: dict[str, None] = {}
    proof = {(line.file, line.line) for line in verdict.evidence[:1]}
    for fact in everything(told):
        first = fact.place.rank in verdict.first_ranks
        first = first or (not verdict.first_ranks and (fact.file, fact.number) in proof)
        if first and fact.place.node:
            found.setdefault(fact.place.node)
    return tuple(found)


def _spans(lines: Iterable[LogLine]) -> tuple[tuple[int, float, float], ...]:
    """Return when each rank first and last wrote a line with a dated time stamp."""
    spans: dict[int, tuple[float, float]] = {}
    for line in lines:
        rank, at_s = line.place.rank, line.at_s
        if rank is None or at_s is None or at_s < DATED_S:
            continue
        first, last = spans.get(rank, (at_s, at_s))
        spans[rank] = min(first, at_s), max(last, at_s)
    return tuple((rank, *spans[rank]) for rank in sorted(spans))
