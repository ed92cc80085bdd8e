"""The post-mortem of logs that another launcher left: one verdict for each attempt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from dsup.core.verdict import Verdict


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

    Args:
        paths: regular files, directories, FIFOs, or ``-`` for standard input.

    Raises:
        DsupError: no path can be read.
    """
    raise NotImplementedError(paths)
