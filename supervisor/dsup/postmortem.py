"""The post-mortem of logs that another launcher left: one verdict for each attempt."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from dsup.attribution.logged.calm import is_calm
from dsup.attribution.logged.judge import judge_log
from dsup.attribution.logged.order import joined, judge_traces
from dsup.attribution.logged.places import everything
from dsup.core.errors import SpecError
from dsup.core.verdict import Evidence, Verdict
from dsup.edges.log_files import LogFiles
from dsup.edges.trace_files import TraceFiles
from dsup.facts.logs import attempts, extract, streams
from dsup.facts.logs.line import LogLine
from dsup.facts.logs.said import LoggedAttempt
from dsup.facts.logs.stamps import DATED_S

NO_FAILURE: Final = "the log tells of no failure"

_SUMMARY: Final = ("report", "root_cause")


class LogFinding(NamedTuple):
    """One attempt or run that logs tell of.

    Attributes:
        verdict: ``at_s`` is CLOCK_REALTIME, NaN where the log has no time; evidence has
            file and line of the log.
        nodes: where its first ranks ran, as far as the log tells.
        launcher: such as ``torchrun``; empty if unknown.
        world_size: None if unknown.
        spans: ``(rank, first, last)`` of each rank's lines, seconds; for a timeline.
        zoned: the log's times tell their zone; else they are the clock that the log
            shows, read as if it were UTC.
        directory: the run directory that the log says dsup made; empty for none.
    """

    verdict: Verdict
    nodes: tuple[str, ...] = ()
    launcher: str = ""
    world_size: int | None = None
    spans: tuple[tuple[int, float, float], ...] = ()
    zoned: bool = False
    directory: str = ""


class LogDiagnosis(NamedTuple):
    """What logs say.

    Attributes:
        findings: in the order of the log; attempts that the log tells no failure of
            have none, so that there may be none at all.
        remarks: what could not be read, and why; which attempts have no finding.
        bytes_read: how much of the files was looked at.
        launcher: who started the ranks; empty if unknown.
        world_size: None if unknown.
    """

    findings: tuple[LogFinding, ...]
    remarks: tuple[str, ...] = ()
    bytes_read: int = 0
    launcher: str = ""
    world_size: int | None = None


class _Judged(NamedTuple):
    """One attempt; no finding where the log tells of no failure."""

    number: int
    launcher: str
    world_size: int | None
    finding: LogFinding | None


def diagnose_logs(paths: Sequence[str]) -> LogDiagnosis:
    """Return what log files say; directories are searched for logs.

    Several files of one attempt, per rank or per node, are one finding.

    Args:
        paths: regular files, directories, FIFOs, or ``-`` for standard input.

    Raises:
        DsupError: no path can be read.
    """
    traces = TraceFiles(paths)
    files = LogFiles(traces.rest)
    judged = tuple(_judged(streams.lines(files.lines())))
    remarks = (*files.remarks, *traces.remarks)
    if not files.bytes_read and not traces.dumps:
        why = "; ".join(remarks) or "there is nothing to read (name a log)"
        raise SpecError(f"cannot diagnose these logs: {why}")
    launchers = [one.launcher for one in judged if one.launcher]
    findings = [one.finding for one in judged if one.finding is not None]
    traced = tuple(_traced(traces))
    found = tuple(_with_traces(findings, traced))
    calm = () if len(found) > len(findings) else _calm(judged)
    told = traces.remarks if traced and not files.bytes_read else remarks
    return LogDiagnosis(
        found,
        (*told, *calm),
        files.bytes_read,
        launchers[-1] if launchers else "",
        max((one.world_size or 0 for one in judged), default=0) or None,
    )


def _traced(files: TraceFiles) -> Iterator[Verdict]:
    """Yield what flight recorders say, a verdict an attempt.

    Directories that have no rank in common are those of one attempt's nodes.
    """
    groups = list(files.dumps.values())
    ranks = [rank for group in groups for rank in group]
    if len(set(ranks)) == len(ranks):
        groups = [{rank: one for group in groups for rank, one in group.items()}]
    for group in groups:
        traces = {rank: one.trace for rank, one in group.items()}
        places = {rank: one.file for rank, one in group.items()}
        verdict = judge_traces(traces, places)
        if verdict is not None:
            yield verdict


def _with_traces(
    findings: Sequence[LogFinding], traced: Sequence[Verdict]
) -> Iterator[LogFinding]:
    """Yield the findings; traces tell more of the last ones, or are findings."""
    pairs = min(len(findings), len(traced))
    alone = len(traced) - pairs
    yield from findings[: len(findings) - pairs]
    yield from (LogFinding(verdict, zoned=True) for verdict in traced[:alone])
    for finding, verdict in zip(
        findings[len(findings) - pairs :], traced[alone:], strict=True
    ):
        yield finding._replace(verdict=joined(finding.verdict, verdict))


def _calm(judged: Sequence[_Judged]) -> Iterator[str]:
    """Yield what the log tells no failure of."""
    calm = [one for one in judged if one.finding is None]
    if len(calm) == len(judged):
        yield NO_FAILURE
        return
    for one in calm:
        yield f"attempt {one.number}: {NO_FAILURE}"


def _judged(lines: Iterable[LogLine]) -> Iterator[_Judged]:
    for batch in attempts.split(lines):
        told = extract.attempt(batch.lines, batch.number)
        verdict = judge_log(told)
        known = _Judged(batch.number, told.launcher, told.world_size, None)
        if is_calm(told, verdict):
            yield known
            continue
        finding = LogFinding(
            _dated(verdict),
            _nodes(told, verdict),
            told.launcher,
            told.world_size,
            _spans(batch.lines),
            _zoned(told, batch.lines),
            told.directory,
        )
        yield known._replace(finding=finding)


def _zoned(told: LoggedAttempt, lines: Iterable[LogLine]) -> bool:
    """Return whether all times of an attempt tell their zone; a summary's never do."""
    if any(end.source in _SUMMARY for end in told.ends):
        return False
    zones = {line.zoned for line in lines if line.at_s is not None}
    return zones == {True}


def _dated(verdict: Verdict) -> Verdict:
    """Return a verdict without times that have no date: they are no CLOCK_REALTIME."""
    at_s = verdict.at_s if verdict.at_s >= DATED_S else math.nan
    evidence = tuple(_dated_line(line) for line in verdict.evidence)
    return verdict._replace(at_s=at_s, evidence=evidence)


def _dated_line(line: Evidence) -> Evidence:
    dated = line.at_s is not None and line.at_s >= DATED_S
    return line if dated else line._replace(at_s=None)


def _nodes(told: LoggedAttempt, verdict: Verdict) -> tuple[str, ...]:
    """Return the nodes of the first ranks; without ranks, that of the first proof.

    Where a failure summary tells a rank's host, no file name or label counts: these
    call the same node otherwise.
    """
    hosts = {e.place.rank: e.place.node for e in told.ends if e.source in _SUMMARY}
    found: dict[str, None] = {}
    proof = {(line.file, line.line) for line in verdict.evidence[:1]}
    for fact in everything(told):
        first = fact.place.rank in verdict.first_ranks
        first = first or (not verdict.first_ranks and (fact.file, fact.number) in proof)
        host = hosts.get(fact.place.rank) if fact.place.rank is not None else ""
        if first and (node := host or fact.place.node):
            found.setdefault(node)
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
