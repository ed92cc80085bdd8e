"""The judge: the first rule that speaks, completed by what every verdict has.

Pure and total: whatever the timeline holds, there is a verdict. The rules after the one
that speaks are asked as well, for ``--why`` only: none of them changes the answer.
"""

from __future__ import annotations

import math
from typing import Final

from dsup.attribution import proof
from dsup.attribution.accounts import SIGABRT, Account, accounts
from dsup.attribution.advice import advice_for
from dsup.attribution.hardware_proof import supporting
from dsup.attribution.rules import RULES, Rule, unknown
from dsup.attribution.timeline import Timeline
from dsup.attribution.why import would_change
from dsup.attribution.wording import one_line
from dsup.core.exits import signal_name
from dsup.core.verdict import Evidence, Looked, Verdict, Victim

EVIDENCE_MAX: Final = 24
SIGNATURE_MAX_CHARS: Final = 200
ALSO_MAX_RANKS: Final = 256
"""With more ranks on a node, rules after the one that speaks are not asked: the judge
has other things to do in its five seconds."""


def judge(timeline: Timeline, rules: tuple[Rule, ...] = RULES) -> Verdict:
    """Return the verdict on an attempt.

    Args:
        timeline: everything that is known of it, so far.
        rules: in the order in which they are tried.
    """
    answers = _answers(timeline, rules)
    spoken = next((answer for answer in answers if answer is not None), None)
    verdict = _completed(timeline, spoken or unknown(timeline))
    return verdict._replace(
        looked=tuple(map(_looked, rules, answers)),
        would_change=would_change(timeline, verdict),
    )


def _answers(timeline: Timeline, rules: tuple[Rule, ...]) -> list[Verdict | None]:
    """Return what each rule has to say, as far as they were asked."""
    answers: list[Verdict | None] = []
    spoken = False
    for rule in rules:
        if spoken and timeline.world_size > ALSO_MAX_RANKS:
            break
        answers.append(_also(rule, timeline) if spoken else rule(timeline))
        spoken = spoken or answers[-1] is not None
    return answers


def _also(rule: Rule, timeline: Timeline) -> Verdict | None:
    """Return what a rule says after another has spoken: its bug costs no verdict."""
    try:
        return rule(timeline)
    except Exception:  # noqa: BLE001 (the answer is known, and stands)
        return None


def _looked(rule: Rule, answer: Verdict | None) -> Looked:
    if answer is None:
        return Looked(rule.__name__)
    return Looked(rule.__name__, answer.cause, answer.first_ranks)


def _completed(timeline: Timeline, verdict: Verdict) -> Verdict:
    known = accounts(timeline)
    at_s = verdict.at_s if math.isfinite(verdict.at_s) else timeline.started_s
    verdict = verdict._replace(at_s=at_s)
    proven = (*verdict.evidence, *supporting(timeline, verdict))
    evidence = (*proven, *_unread(timeline, verdict))
    noted = (
        *proof.of_handed(timeline, verdict.first_ranks, evidence),
        *proof.of_deafened(timeline),
        *proof.looked_at(timeline, evidence),
    )
    own = {a.rank for a in known if a.own}
    return verdict._replace(
        evidence=tuple(
            line._replace(text=one_line(line.text))
            for line in (*evidence, *noted)[:EVIDENCE_MAX]
        ),
        victims=_victims(timeline, verdict),
        ended_by_dsup=tuple(sorted(set(timeline.signalled) - own)),
        advice=advice_for(verdict.cause, verdict.rule, verdict.summary),
        signature=one_line(f"{verdict.cause} {verdict.signature}", SIGNATURE_MAX_CHARS),
    )


def _victims(timeline: Timeline, verdict: Verdict) -> tuple[Victim, ...]:
    """Return ranks that ended by themselves, but not of a cause of their own."""
    if verdict.cause == "unknown" or verdict.rule == "obstacle":
        return ()
    of = verdict.first_ranks[0] if len(verdict.first_ranks) == 1 else None
    return tuple(
        Victim(a.rank, of, _how(timeline, a, verdict))
        for a in accounts(timeline)
        if a.own and a.rank not in verdict.first_ranks and _is_victim(a, verdict)
    )


def _is_victim(account: Account, verdict: Verdict) -> bool:
    group_kill = verdict.cause == "host_oom" and account.sort == "signal"
    return account.sort in {"communication", "exit"} or group_kill


def _how(timeline: Timeline, account: Account, verdict: Verdict) -> str:
    """Return ``connection closed by peer, exit 1, +0.3 s``."""
    status = account.status
    ended = signal_name(-status) if status < 0 else f"exit {status}"
    silent = "without a word" if account.rank in timeline.words else "output not seen"
    if account.sort == "signal":
        silent = "killed as well"
    elif status == -SIGABRT:
        silent = "aborted"
    how = account.how or silent
    # Adding zero makes no minus of a zero.
    after_s = round(account.until_s - verdict.at_s, 1) + 0.0
    return f"{how}, {ended}, {after_s:+.1f} s"


def _unread(timeline: Timeline, verdict: Verdict) -> tuple[Evidence, ...]:
    """Return what could not be looked at, where that bears on a death by a signal."""
    by_signal = verdict.status < 0 or verdict.cause in {"host_oom", "unknown"}
    said = any(e.source == "kernel" for e in verdict.evidence)
    if not by_signal or said or not timeline.kernel_log:
        return ()
    return (Evidence("kernel", f"kernel log: {one_line(timeline.kernel_log)}"),)
