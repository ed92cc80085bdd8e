"""The rule about hangs that flight recorders tell, and its lines of evidence.

torch numbers the collectives of each process group, and its recorders keep what each
rank has called. Where a device works behind the program, as with NCCL, stacks do not
show who waits: the numbers do.
"""

from __future__ import annotations

from typing import Final

from dsup.attribution import whereabouts
from dsup.attribution.collectives import Stuck, stuck
from dsup.attribution.hang_scene import (
    at_places,
    hung,
    shown_by,
    together,
    verdict_of,
)
from dsup.attribution.timeline import Timeline
from dsup.attribution.wording import others, subject
from dsup.core.verdict import Certainty, Verdict

_NAMELESS: Final = frozenset({"everyone", "circle"})


def called_out_of_order(timeline: Timeline) -> Verdict | None:
    """Name the ranks that have not called what the others are inside of.

    Symptom: the numbers of the flight recorders. A rank that has not called a
    collective by the number in which the others wait did not come; one that has called
    another function, or with another size, by that number took another branch; where
    all have called it and none has finished, nobody is missing. Proven where stacks
    say the same, or the recorders say it twice.
    """
    found = stuck(timeline.traces, timeline.world_size)
    if timeline.hang is None or found.kind == "none":
        return None
    if found.silent and (found.kind in _NAMELESS or not found.ranks):
        return None  # whoever gave no trace may be the one that is missing
    sure = _certainty(timeline, found)
    at = at_places(timeline, found.ranks) if found.ranks else ""
    text = told(found, timeline.world_size, sure, at)
    return verdict_of(
        timeline,
        "called_out_of_order",
        found.ranks,
        sure,
        text,
        cause="collective_mismatch" if found.kind == "mismatch" else "hang",
        key=_key(timeline, found),
    )


def _certainty(timeline: Timeline, found: Stuck) -> Certainty:
    if found.kind in _NAMELESS or found.kind == "not_started" or not found.ranks:
        return "likely"
    shown = shown_by(timeline)
    before = stuck(timeline.traces_before, timeline.world_size)
    same = (before.kind, before.ranks, before.group, before.number)
    twice = same == (found.kind, found.ranks, found.group, found.number)
    agree = shown.kind == found.kind and shown.ranks == found.ranks
    sure = whereabouts.of_rank(timeline, found.ranks[0]).sure
    if found.kind == "absent":
        sure = sure and together(timeline, found.ranks)
    return "proven" if (twice or agree) and sure and not found.silent else "likely"


def told(found: Stuck, size: int, sure: Certainty, at: str = "") -> str:
    """Return what was found as a sentence without its full stop.

    Args:
        found: what recorders show.
        size: ranks of the run.
        sure: how sure that is.
        at: `` at dataset.py:88``, where the first rank is; empty if unknown.
    """
    op, rest = f"{found.op} #{found.number}".strip(), others(len(found.waiting))
    match found.kind:
        case "absent":
            return _missing(found, size, sure, at)
        case "mismatch":
            return _branched(found, sure, size)
        case "not_started":
            verb = "has" if len(found.ranks) == 1 else "have"
            who = f"{subject(found.ranks)} {verb} called {op} and not begun it"
            return f"{who}; {rest} are in it"
        case "circle":
            return "The ranks wait for each other in different process groups"
        case _:
            why = "the network between them may have failed"
            if found.number == 1:
                why = "likely the network between them does not work"
            who = subject(found.waiting, size)
            return f"{who} are inside {op}, and none is missing: {why}"


def _missing(found: Stuck, size: int, sure: Certainty, at: str) -> str:
    before = f"{',' if at else ''} before {found.op} #{found.number}"
    wait = "wait" if len(found.waiting) > 1 else "waits"
    them = "it" if len(found.ranks) == 1 else "them"
    who = subject(found.ranks, size)
    rest = others(len(found.waiting))
    return f"{who} {hung(sure)}{at}{before}; {rest} {wait} for {them} there"


def _branched(found: Stuck, sure: Certainty, size: int) -> str:
    if not found.ranks:
        told = ", ".join(
            f"rank {r} {what}" for r, what in list(found.others.items())[:4]
        )
        return f"The ranks called different things as #{found.number}: {told}"
    usual = others(max(size - len(found.ranks), 1))
    called = "called" if sure == "proven" else "likely called"
    who = f"{subject(found.ranks)} {called} {found.others[found.ranks[0]]}"
    return f"{who} as #{found.number} where {usual} called {found.op}"


def _key(timeline: Timeline, found: Stuck) -> str:
    """Return the place, for a signature: without the number, which goes on."""
    place = whereabouts.of_rank(timeline, found.ranks[0]).key if found.ranks else ""
    return f"{found.kind} {found.op} {place}"
