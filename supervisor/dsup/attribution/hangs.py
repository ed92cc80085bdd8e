"""Rules for hangs that stacks tell: who did not come, who came alone, who called else.

No rank has failed by itself, so there are no errors to weigh. A collective returns when
every rank has come, so the question is who has not. What stacks say is proof where they
say the same twice, when the hang was first suspected and at its end; else it is likely.

Source: orders in which failure logs mislead. The rank that waits is seldom the cause,
the one that waits alone often is, and where none is missing nobody is.
"""

from __future__ import annotations

from typing import Final

from dsup.attribution import whereabouts
from dsup.attribution.hang_scene import (
    KNOWN,
    at_places,
    duration,
    gone,
    hung,
    line_of,
    named,
    same_twice,
    shown_by,
    together,
    verdict_of,
    whereabouts_of,
)
from dsup.attribution.standstill import is_sure
from dsup.attribution.timeline import Timeline
from dsup.attribution.wording import others, subject
from dsup.core.verdict import Certainty, Verdict
from dsup.facts.stacks import Process

_MAKES_GROUP: Final = frozenset(
    {"_store_based_barrier", "init_process_group", "new_group"}
)


def called_another(timeline: Timeline) -> Verdict | None:
    """Name the ranks that wait in another collective than most.

    Symptom: every rank waits, and not in the same function. Those between two ranks
    (``send``, ``recv``) are no sign: they differ by nature. Nor is the same function
    called at another line: a script may call it in either branch.
    """
    shown = shown_by(timeline)
    if timeline.hang is None or shown.kind != "mismatch":
        return None
    ops = {rank: at.waits_in for rank, at in shown.where.items()}
    sure: Certainty = "proven" if same_twice(timeline, shown) else "likely"
    sure = sure if shown.ranks else "guess"
    calls = {rank: named(op) for rank, op in ops.items()}
    odd = shown.ranks
    if not odd:
        each = (f"rank {rank} {calls[rank]}" for rank in sorted(calls)[:4])
        text = f"The ranks wait in different collectives: {', '.join(each)}"
    else:
        usual = next(calls[rank] for rank in shown.waiting if rank not in odd)
        verb = "likely called" if sure == "likely" else "called"
        rest = others(len(shown.waiting) - len(odd))
        text = f"{subject(odd)} {verb} {calls[odd[0]]} where {rest} called {usual}"
    return verdict_of(
        timeline,
        "called_another",
        odd,
        sure,
        text,
        cause="collective_mismatch",
        key=" ".join(sorted(set(ops.values()))),
    )


def never_came(timeline: Timeline) -> Verdict | None:
    """Name the ranks that did not come where all others wait.

    Symptom: the others are inside a collective, or at the one line where nearly all
    are (what is waited for below it is C++, which no Python stack shows): the latter is
    a guess, for they may hang there themselves. Of several ranks at different places
    one may wait for another, so they are likely at most.
    """
    shown = shown_by(timeline)
    if timeline.hang is None or shown.kind != "absent" or not shown.waiting:
        return None
    ranks, many = shown.ranks, len(shown.waiting)
    at = whereabouts_of(timeline, ranks)
    sure: Certainty = "proven" if same_twice(timeline, shown) else "likely"
    clear = at.sure and is_sure(shown) and together(timeline, ranks)
    sure = sure if clear else "likely"
    sure = sure if len(ranks) == 1 or len(ranks) < many else "guess"
    rest, wait = others(many), "wait" if many > 1 else "waits"
    collective = shown.op in KNOWN
    sure = sure if collective else "guess"
    before = f" before {named(shown.op)}" if collective else ""
    before = f",{before}" if at.said and before else before
    there = "for it there" if len(ranks) == 1 else "for them there"
    there = f"{wait} {there}" if collective else _are(many, shown.op)
    who = f"{subject(ranks)} {hung(sure)}{at_places(timeline, ranks)}{before}"
    text = f"{who}; {rest} {there}"
    key = f"{shown.op if collective else ''} {at.key}".strip()
    return verdict_of(timeline, "never_came", ranks, sure, text, key=key)


def _are(many: int, place: str) -> str:
    return f"{'are' if many > 1 else 'is'} at {line_of(place)}"


def came_alone(timeline: Timeline) -> Verdict | None:
    """Name the one rank that waits in a collective that no other takes part in.

    Symptom: one rank waits and several do not, as where rank 0 alone saves, logs or
    evaluates with a collective in it, or the others have ended. Likely: that several
    ranks are late for the same reason would look alike.
    """
    hang = timeline.hang
    shown = shown_by(timeline)
    ended = len(gone(timeline))
    alone = shown.kind == "alone" or (
        ended > 1 and shown.kind == "everyone" and len(shown.waiting) == 1
    )
    if hang is None or not alone:
        return None
    (rank,) = shown.waiting
    sure: Certainty = "likely" if ended + 1 == timeline.world_size else "guess"
    sure = "likely" if same_twice(timeline, shown) and is_sure(shown) else sure
    rest = timeline.world_size - 1
    do = "have ended" if ended == rest else "are elsewhere"
    do = do if rest > 1 else do.replace("have", "has").replace("are", "is")
    op = named(shown.op) if shown.op in KNOWN else line_of(shown.op)
    at = line_of(shown.where[rank].place)
    where = f" at {at}" if at and at != op else ""
    verb = "likely hung" if sure == "likely" else "may have hung"
    text = f"Rank {rank} {verb} alone in {op}{where}: {others(rest)} {do}"
    key = f"{shown.op} {at}"
    return verdict_of(timeline, "came_alone", (rank,), sure, text, key=key)


def nobody_is_missing(timeline: Timeline) -> Verdict | None:
    """Name no rank where all of them wait for each other in the same call.

    Symptom: every rank is inside the same collective, or at the same line. Where it is
    the first one of the attempt, the ranks cannot reach each other: peer-to-peer
    access, a firewall, the wrong interface. Later, something between them has failed.
    """
    hang = timeline.hang
    shown = shown_by(timeline)
    if hang is None or shown.kind != "everyone" or len(shown.waiting) < 2:  # noqa: PLR2004
        return None
    many = len(shown.waiting)
    first = _is_first(timeline, shown.op)
    known = shown.op in KNOWN
    if gone(timeline) and not known:
        return None  # they are at one line, and nothing says that they wait
    where = f"wait in {named(shown.op)}" if known else _are(many, shown.op)
    where = f"wait in {shown.op}" if ", " in shown.op else where
    who = f"All {many} ranks" if many == timeline.world_size else subject(shown.waiting)
    text = f"{who} {where}, and none is missing"
    if first and known:
        text = f"{text}: likely the network between them does not work"
    elif known:
        text = f"{text}: the network between them may have failed"
    sure: Certainty = "likely" if first and known else "guess"
    rule = "nobody_is_missing"
    key = f"{'first ' if first else ''}{shown.op}"
    return verdict_of(timeline, rule, (), sure, text, key=key)


def made_no_step(timeline: Timeline) -> Verdict | None:
    """Name the ranks that outlasted their limit, where nobody waits for them.

    Symptom: no step, and stacks that show no collective, or no stacks. Where all
    ranks are so, none is named; a rank that is alone in the world always is. Whoever
    is left where others have ended may have been about to end as well: a guess.
    """
    hang = timeline.hang
    if hang is None:
        return None
    size = timeline.world_size
    ended = {a.rank for a in gone(timeline)}
    ranks = tuple(sorted(set(hang.ranks) - ended))
    ranks = ranks if size == 1 or len(ranks) < size else ()
    waited = duration(hang.at_s - hang.since_s)
    if not ranks:
        text = (
            f"No rank made a step for {waited}, and none is known to wait for another"
        )
        return verdict_of(timeline, "made_no_step", (), "guess", text)
    at = whereabouts_of(timeline, ranks)
    once = whereabouts.process_of(timeline.stacks_before, ranks[0])
    now = whereabouts.process_of(timeline.stacks, ranks[0])
    still = once and now and once.main and _own(once) == _own(now)
    sure: Certainty = "likely" if len(ranks) == 1 and not ended else "guess"
    sure = "proven" if still and size == 1 and at.sure else sure
    it = "it" if len(ranks) == 1 else "they"
    what = "made no step" if timeline.beats else "showed no progress"
    where = at_places(timeline, ranks)
    text = f"{subject(ranks)} {hung(sure)}{where}: {it} {what} for {waited}"
    return verdict_of(timeline, "made_no_step", ranks, sure, text, key=at.key)


def _own(process: Process | None) -> object:
    return whereabouts.own_frame(process.main) if process else None


def _is_first(timeline: Timeline, op: str) -> bool:
    """Return whether no step was made before, as far as that is known."""
    steps = [beat.step for beat in timeline.beats.values()]
    known = bool(steps) and all(not step for step in steps)
    return op in _MAKES_GROUP or known
