"""A verdict: which rank went first and why, with the evidence. Values only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, NamedTuple, TypeAlias

Certainty: TypeAlias = Literal["proven", "likely", "guess", "unknown"]

Source: TypeAlias = Literal[
    "kernel",
    "note",
    "error_file",
    "status",
    "stderr",
    "stdout",
    "state",
    "stack",
    "order",
    "heartbeat",
    "counters",
    "samples",
    "nvml",
    "sysfs",
    "audit",
    "log",
    "launcher",
    "dsup",
]
"""Where a piece of evidence comes from; ``dsup`` is what dsup itself did or met,
``order`` what flight recorders know of the order of collectives, ``log`` a line of a
log that is not dsup's, ``launcher`` another launcher's word."""

SUMMARY_MAX_CHARS: Final = 300

LOOKED_AT: Final = "looked at"
"""How the text of a piece of evidence begins that proves nothing."""


class Evidence(NamedTuple):
    """One thing that bears on the cause.

    Attributes:
        source: where it comes from.
        text: what it says, printable, one line.
        rank: whose it is; None where it is nobody's.
        at_s: when, agent clock, seconds; None where nothing tells.
        file: the file it stands in, below the run directory or absolute; empty for
            none.
        line: the line there, from 1; None for none.
    """

    source: Source
    text: str
    rank: int | None = None
    at_s: float | None = None
    file: str = ""
    line: int | None = None


class Victim(NamedTuple):
    """A rank that ended because of another.

    Attributes:
        of: the rank it is a victim of; None where that is not known.
        how: a few words, such as ``connection closed by peer, exit 1, +0.3 s``.
    """

    rank: int
    of: int | None
    how: str


class Advice(NamedTuple):
    """What to do about it.

    Attributes:
        action: one word for programs, such as ``fix_script``.
        text: one or two lines for people.
    """

    action: str
    text: str


class Looked(NamedTuple):
    """A rule that was tried.

    Attributes:
        rule: its name.
        cause: what it would say; empty where it had nothing to say.
        first_ranks: and of whom.
    """

    rule: str
    cause: str = ""
    first_ranks: tuple[int, ...] = ()


class Verdict(NamedTuple):
    """The answer for one attempt.

    Attributes:
        cause: a key of ``exits.CAUSES``.
        first_ranks: where it began; empty where no rank can be named; all of them
            where all failed alike.
        certainty: how sure that is.
        at_s: when it began, agent clock, seconds; NaN where a log has no times.
        summary: one sentence, at most ``SUMMARY_MAX_CHARS``.
        rule: the name of the rule that spoke.
        evidence: what it rests on, the proof first.
        victims: ranks that ended because of the first.
        ended_by_dsup: ranks that dsup signalled while they still ran.
        left_with_0: those of them that then ended with 0: told to end, not ended.
        advice: what to do; None where dsup knows nothing better than the logs.
        status: the first rank's own exit code or minus its signal; 1 where it has no
            end of its own.
        signature: the same for the same failure in another attempt; no ranks, times,
            pids or addresses in it.
        looked: every rule in the order in which they are tried, with what each says.
        would_change: evidence that is missing and could change the answer, one
            sentence each.
    """

    attempt: int
    cause: str
    first_ranks: tuple[int, ...]
    certainty: Certainty
    at_s: float
    summary: str
    rule: str
    evidence: tuple[Evidence, ...] = ()
    victims: tuple[Victim, ...] = ()
    ended_by_dsup: tuple[int, ...] = ()
    left_with_0: tuple[int, ...] = ()
    advice: Advice | None = None
    status: int = 1
    signature: str = ""
    looked: tuple[Looked, ...] = ()
    would_change: tuple[str, ...] = ()


def with_ends(verdict: Verdict, statuses: Mapping[int, int]) -> Verdict:
    """Return a verdict that tells who left with 0 when dsup told them to end.

    Args:
        verdict: what happened.
        statuses: of each rank that has ended: exit code, or minus its signal number.
    """
    left = (rank for rank in verdict.ended_by_dsup if statuses.get(rank) == 0)
    return verdict._replace(left_with_0=tuple(left))
