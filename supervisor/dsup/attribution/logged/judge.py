"""The judge of logs: the first rule that speaks, completed by what every verdict has.

Pure and total: whatever a log holds, there is a verdict.
"""

from __future__ import annotations

import math
from typing import Final

from dsup.attribution.advice import advice_for
from dsup.attribution.logged.missing import would_change
from dsup.attribution.logged.places import Fact
from dsup.attribution.logged.rules import RULES
from dsup.attribution.logged.signs import Reading, how_lost, read
from dsup.attribution.wording import one_line, sentence, status_text
from dsup.core.verdict import (
    Advice,
    Certainty,
    Evidence,
    Looked,
    Verdict,
    Victim,
)
from dsup.facts.logs.said import End, LoggedAttempt

EVIDENCE_MAX: Final = 24
VICTIMS_MAX: Final = 4096
SIGNATURE_MAX_CHARS: Final = 200

_BY_RULE: Final = {
    "summary": Advice(
        "read_rank_logs",
        "add the ranks' own logs; torchrun keeps them with --log-dir DIR",
    ),
    "ended_by_launcher": Advice(
        "read_kernel_log",
        "look into dmesg: a rank that leaves no word was often killed, out of memory",
    ),
}


def judge_log(attempt: LoggedAttempt) -> Verdict:
    """Return the verdict on an attempt that a log tells of.

    Args:
        attempt: everything that the log says of it.
    """
    log = read(attempt)
    spoken = [(rule.__name__, rule(log)) for rule in RULES]
    first = next((said for _, said in spoken if said is not None), None)
    looked = tuple(
        Looked(name, said.cause, said.first_ranks) if said else Looked(name)
        for name, said in spoken
    )
    return _completed(log, first or unknown(log))._replace(looked=looked)


def unknown(log: Reading) -> Verdict:
    """Name no rank and no cause, and show how the log ends."""
    last = [line for line in log.attempt.last_lines if line.strip()][-3:]
    text = "No cause could be found: no line of the log tells of a failure"
    return Verdict(
        log.attempt.number,
        "unknown",
        (),
        "unknown",
        math.nan,
        sentence(text),
        "unknown",
        tuple(Evidence("log", one_line(line)) for line in last),
    )


def _completed(log: Reading, verdict: Verdict) -> Verdict:
    return verdict._replace(
        certainty=_certainty(verdict),
        evidence=verdict.evidence[:EVIDENCE_MAX],
        victims=_victims(log, verdict),
        advice=_advice(verdict),
        would_change=would_change(log, verdict),
        signature=one_line(f"{verdict.cause} {verdict.signature}", SIGNATURE_MAX_CHARS),
    )


def _certainty(verdict: Verdict) -> Certainty:
    """Return how sure it is: a message about NaN does not prove where it came from."""
    by_words = verdict.cause == "numeric_divergence" and verdict.certainty == "proven"
    return "likely" if by_words else verdict.certainty


def _advice(verdict: Verdict) -> Advice | None:
    """Return what to do, where what a log lacks tells more than the cause does."""
    said = " ".join((verdict.summary, *(line.text for line in verdict.evidence)))
    return _BY_RULE.get(verdict.rule) or advice_for(verdict.cause, verdict.rule, said)


def _victims(log: Reading, verdict: Verdict) -> tuple[Victim, ...]:
    """Return ranks that lost another one, or that the launcher ended."""
    if verdict.cause == "unknown" and not verdict.first_ranks:
        return ()
    of = verdict.first_ranks[0] if len(verdict.first_ranks) == 1 else None
    ends = {e.place.rank: e for e in reversed(log.attempt.ends)}
    how: dict[int, str] = {}
    for fact in (*log.lost, *(e for e in log.attempt.ends if e.by_launcher)):
        rank = fact.place.rank
        if rank is not None and rank not in verdict.first_ranks:
            how.setdefault(rank, _how(fact, ends.get(rank)))
    return tuple(Victim(rank, of, how[rank]) for rank in sorted(how)[:VICTIMS_MAX])


def _how(fact: Fact, end: End | None) -> str:
    """Return ``connection closed by peer, exit code 1``."""
    what = "ended by its launcher" if isinstance(fact, End) else how_lost(fact)
    told = end is not None and end.status is not None and not end.by_launcher
    return f"{what}, {status_text(end.status or 0)}" if told and end else what
