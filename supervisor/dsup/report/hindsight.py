"""Verdicts of attempts that left none: what the journal alone supports. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from dsup.core import events as ev
from dsup.core.exits import CAUSES, signal_name
from dsup.core.state import Hang
from dsup.core.verdict import Advice, Evidence, Verdict
from dsup.report import hangs
from dsup.report.account import Account, Life, first_failure, new_life
from dsup.report.console import how
from dsup.report.sentences import spans

_LAUNCH_AGAIN: Final = Advice(
    "launch_again",
    "launch again to resume; find out who or what kills processes on that node",
)
_AFTER_BOOT: Final = Advice(
    "check_node", "look for a kernel panic or a power event; launch again to resume"
)


def from_journal(told: Account, number: int) -> Verdict:
    """Return the verdict of a failed attempt, as far as its journal supports one."""
    life = told.lives.get(number, new_life())
    if life.cannot is not None:
        return _of_obstacle(life.cannot, number)
    if life.judged is not None:
        return _of_judgement(life, life.judged)
    if life.hang is not None:
        return _of_hang(life, life.hang, number)
    return _of_ends(life, number)


def agent_gone(told: Account, *, node: str, rebooted: bool) -> Verdict:
    """Return the verdict of an attempt whose agent or guard was killed.

    Where a rank had failed before, its time is when that was; ``from_journal`` tells
    the rest of it.

    Args:
        told: what the journal tells.
        node: name of the node.
        rebooted: the node has another boot id now.
    """
    number = told.attempt
    life = told.lives.get(number, new_life())
    first = first_failure(life)
    after = f", after rank {first.rank} {how(first.status)}" if first else ""
    if first is None and life.hang is not None:
        after = f", in a hang ({hangs.seen(life.hang)})"
    last_s = told.last.at_s if told.last else 0.0
    if rebooted:
        cause, advice = "node_rebooted", _AFTER_BOOT
        summary = f"Node {node} was rebooted during attempt {number}{after}."
        proof = "the journal ends without an exit, and the boot id is another one now"
    elif told.guard_lost:
        cause, advice = "agent_killed", _LAUNCH_AGAIN
        summary = (
            f"The guard was killed in attempt {number}{after}; "
            "the agent ended the ranks."
        )
        proof = "the agent saw its guard go"
    else:
        cause, advice = "agent_killed", _LAUNCH_AGAIN
        summary = (
            f"The agent was killed in attempt {number}{after}: its journal just ends."
        )
        proof = "the journal ends without an exit, and nobody writes it"
    return Verdict(
        attempt=number,
        cause=cause,
        first_ranks=(),
        certainty="proven" if told.guard_lost else "likely",
        at_s=first.at_s if first else last_s,
        summary=summary,
        rule="journal_end",
        evidence=(Evidence("dsup", proof), *_statuses(life.own)),
        advice=advice,
        signature=cause,
    )


def _of_obstacle(met: ev.Cannot, number: int) -> Verdict:
    known = met.cause if met.cause in CAUSES else "unknown"
    return Verdict(
        attempt=number,
        cause=known,
        first_ranks=(),
        certainty="proven",
        at_s=met.at_s,
        summary=f"{met.reason[:1].upper()}{met.reason[1:]}.",
        rule="obstacle",
        evidence=(Evidence("dsup", met.reason, None, met.at_s),),
        status=met.code,
        signature=known,
    )


def _of_judgement(life: Life, judged: ev.Judged) -> Verdict:
    known = judged.cause if judged.cause in CAUSES else "unknown"
    ranks = judged.first_ranks
    at_s = next((e.at_s for e in life.ends if e.rank in ranks), judged.at_s)
    who = f"with rank{'s' if len(ranks) > 1 else ''} {spans(ranks)}" if ranks else ""
    where = f"It began {who}" if ranks else "No rank can be named"
    return Verdict(
        attempt=judged.attempt,
        cause=known,
        first_ranks=ranks,
        certainty="likely",
        at_s=at_s,
        summary=f"{where}: {CAUSES[known].meaning}; the judge's evidence was not kept.",
        rule="journal",
        evidence=_statuses(life.own),
        ended_by_dsup=_ended_by_dsup(life),
        status=judged.status,
        signature=judged.signature,
    )


def _of_hang(life: Life, hang: Hang, number: int) -> Verdict:
    """Return what was seen of a hang, of which no judge's word was kept."""
    said = hangs.told(hang)
    return Verdict(
        attempt=number,
        cause="hang",
        first_ranks=hang.ranks,
        certainty="likely" if hang.ranks else "guess",
        at_s=hang.at_s,
        summary=f"{said[:1].upper()}{said[1:]}.",
        rule="journal",
        evidence=(Evidence("dsup", said, None, hang.at_s), *_statuses(life.own)),
        ended_by_dsup=_ended_by_dsup(life),
        signature=f"hang|{hang.place}",
    )


def _of_ends(life: Life, number: int) -> Verdict:
    """Return what wait statuses support: a guess at the rank, and no cause."""
    first = first_failure(life)
    if first is None:
        return Verdict(
            attempt=number,
            cause="unknown",
            first_ranks=(),
            certainty="unknown",
            at_s=0.0,
            summary="The attempt failed, but the journal names no rank that did.",
            rule="journal",
        )
    return Verdict(
        attempt=number,
        cause="unknown",
        first_ranks=(first.rank,),
        certainty="guess",
        at_s=first.at_s,
        summary=f"Rank {first.rank} may have gone first: it {how(first.status)}.",
        rule="journal",
        evidence=_statuses(life.own),
        ended_by_dsup=_ended_by_dsup(life),
        status=first.status,
        signature=f"unknown|{first.status}",
    )


def _statuses(ends: Iterable[ev.RankExited]) -> tuple[Evidence, ...]:
    return tuple(
        Evidence(
            "status", f"rank {end.rank}: {_status(end.status)}", end.rank, end.at_s
        )
        for end in ends
    )


def _ended_by_dsup(life: Life) -> tuple[int, ...]:
    by_themselves = {end.rank for end in life.own}
    return tuple(sorted({end.rank for end in life.ends} - by_themselves))


def _status(status: int) -> str:
    return signal_name(-status) if status < 0 else f"exit code {status}"
