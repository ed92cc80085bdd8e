"""Verdicts of attempts that left none: what journal and logs support. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from dsup.core import events as ev
from dsup.core.exits import CAUSES, signal_name
from dsup.core.state import Hang
from dsup.core.verdict import LOOKED_AT, Advice, Evidence, Verdict, with_ends
from dsup.report import hangs
from dsup.report.account import Account
from dsup.report.console import how
from dsup.report.last_seen import signs
from dsup.report.life import Life, first_failure, new_life
from dsup.report.sentences import spans

if TYPE_CHECKING:
    from dsup.attribution.timeline import Timeline
    from dsup.facts.output import LastWords

GONE_RULE: Final = "journal_end"
"""The rule of what ``agent_gone`` says."""

_LAUNCH_AGAIN: Final = Advice(
    "launch_again",
    "launch again to resume; find out who or what kills processes on that node",
)
_AFTER_BOOT: Final = Advice(
    "check_node", "look for a kernel panic or a power event; launch again to resume"
)


def from_journal(
    told: Account, number: int, tails: Mapping[int, tuple[bytes, bytes]] | None = None
) -> Verdict:
    """Return the verdict of a failed attempt, as far as its journal supports one.

    Args:
        told: what the journal tells.
        number: the attempt.
        tails: the end of each rank's stderr and stdout, as far as they were kept.
    """
    life = told.lives.get(number, new_life())
    statuses = {end.rank: end.status for end in life.ends}
    return with_ends(_of_journal(told, life, number, tails or {}), statuses)


def _of_journal(
    told: Account, life: Life, number: int, tails: Mapping[int, tuple[bytes, bytes]]
) -> Verdict:
    if life.cannot is not None:
        return _of_obstacle(life.cannot, number)
    if life.judged is not None:
        return _of_judgement(life, life.judged)
    if life.hang is not None:
        return _of_hang(life, life.hang, number)
    return _of_words(told, number, tails) or _of_ends(life, number)


def agent_gone(
    told: Account, *, node: str, rebooted: bool, page: bytes = b""
) -> Verdict:
    """Return the verdict of an attempt whose agent or guard was killed.

    Its time is when that was, or for an agent when it was seen last: its scribe sees
    it go. Where a rank had failed before, ``from_journal`` tells the rest of it.

    Args:
        told: what the journal tells.
        node: name of the node.
        rebooted: the node has another boot id now.
        page: the heartbeat page of its last attempt, as it was kept; empty for none.
    """
    number = told.attempt
    life = told.lives.get(number, new_life())
    first = first_failure(life)
    after = f", after rank {first.rank} {how(first.status)}" if first else ""
    if first is None and life.hang is not None:
        after = f", in a hang ({hangs.seen(life.hang)})"
    last_s = told.last.at_s if told.last else 0.0
    gone_s = last_s if told.guard_lost_s is None else told.guard_lost_s
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
        at_s=gone_s,
        summary=summary,
        rule=GONE_RULE,
        evidence=(
            Evidence("dsup", proof, None, gone_s),
            *_statuses(life.own),
            *signs(page, {end.rank for end in life.ends}, gone_s),
        ),
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
    # Several that outlast a limit wait for one of them, or for none.
    ranks = () if hang.why == "limit" and len(hang.ranks) > 1 else hang.ranks
    return Verdict(
        attempt=number,
        cause="hang",
        first_ranks=ranks,
        certainty="likely" if ranks else "guess",
        at_s=hang.at_s,
        summary=f"{said[:1].upper()}{said[1:]}.",
        rule="journal",
        evidence=(Evidence("dsup", said, None, hang.at_s), *_statuses(life.own)),
        ended_by_dsup=_ended_by_dsup(life),
        signature=f"hang|{hang.place}",
    )


def _of_words(
    told: Account, number: int, tails: Mapping[int, tuple[bytes, bytes]]
) -> Verdict | None:
    """Return what the judge says by wait statuses and last words; None for nothing."""
    from dsup.attribution.judge import judge
    from dsup.facts.output import LastWords, last_words

    words = {
        rank: last_words(err, out, rank=rank) for rank, (err, out) in tails.items()
    }
    spoken = {rank: said for rank, said in words.items() if said != LastWords()}
    if not spoken:
        return None
    verdict = judge(_timeline(told, number, spoken))
    made = Evidence("dsup", f"{LOOKED_AT} journal and logs only: no judge had answered")
    found = verdict._replace(evidence=(*verdict.evidence, made))
    return None if verdict.cause == "unknown" else found


def _timeline(told: Account, number: int, words: Mapping[int, LastWords]) -> Timeline:
    """Return what journal and logs tell of an attempt; devices and kernel are gone."""
    from dsup.attribution.timeline import End, Standing, Timeline

    life = told.lives.get(number, new_life())
    own = tuple(
        End(end.rank, life.pids.get(end.rank, 0), end.status, end.at_s, end.late_s)
        for end in life.own
    )
    last_s = max((end.at_s for end in own), default=0.0)
    ended = _ended_by_dsup(life)
    return Timeline(
        attempt=number,
        world_size=told.world_size,
        node="",
        started_s=0.0,
        ends=own,
        standing=tuple(Standing(rank, life.pids.get(rank, 0)) for rank in ended),
        signalled=dict.fromkeys(ended, last_s),
        kernel_log="what it said then was not kept",
        counters_read=False,
        words=words,
    )


def _of_ends(life: Life, number: int) -> Verdict:
    """Return what wait statuses support: a guess at the rank, and the cause's kind.

    An exit status is taken for an exception, a signal for a kill, as everywhere
    where no judge has answered yet.
    """
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
    cause = "killed" if first.status < 0 else "python_exception"
    return Verdict(
        attempt=number,
        cause=cause,
        first_ranks=(first.rank,),
        certainty="guess",
        at_s=first.at_s,
        summary=f"Rank {first.rank} may have gone first: it {how(first.status)}.",
        rule="journal",
        evidence=_statuses(life.own),
        ended_by_dsup=_ended_by_dsup(life),
        status=first.status,
        signature=f"{cause}|{first.status}",
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
