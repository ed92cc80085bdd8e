"""What the rules about hangs share: what the stacks show, and how it is said. Pure."""

from __future__ import annotations

from typing import Final

from dsup.attribution import ordered, proof, whereabouts
from dsup.attribution.accounts import Account, accounts
from dsup.attribution.standstill import (
    COLLECTIVES,
    FOREIGN,
    Standstill,
    standstill,
)
from dsup.attribution.timeline import Hang, Timeline
from dsup.attribution.whereabouts import Whereabouts
from dsup.attribution.wording import listed, others, sentence
from dsup.core.verdict import Certainty, Evidence, Verdict
from dsup.facts.stacks import Process

DDP: Final = "DistributedDataParallel"
KNOWN: Final = COLLECTIVES | FOREIGN | {DDP}
"""What ranks wait in that has a name; anything else is a place in a script."""

PLACES_MAX: Final = 4
_GOES_ON_S: Final = 5.0


def verdict_of(  # noqa: PLR0913 (the parts of a verdict)
    timeline: Timeline,
    rule: str,
    ranks: tuple[int, ...],
    certainty: Certainty,
    text: str,
    *,
    cause: str = "hang",
    key: str = "",
) -> Verdict:
    """Return the verdict of a rule; ``key`` is the place, for the signature."""
    hang = timeline.hang
    assert hang is not None  # noqa: S101 (each rule has asked)
    shown = shown_by(timeline)
    told = ranks or tuple(sorted({p.rank for p in timeline.stacks}))[:4]
    failed = [a for a in accounts(timeline) if a.failed]
    evidence = (
        *ordered.of_order(timeline),
        *whereabouts.of_states(timeline, ranks or told),
        *of_waiting(timeline, shown),
        *whereabouts.of_stacks(timeline, told),
        *ordered.of_loads(timeline, told),
        *of_progress(timeline, hang, ranks),
        *proof.of_victims(timeline, failed),
        *(line for rank in told for line in proof.of_beat(timeline, rank)),
    )
    return Verdict(
        timeline.attempt,
        cause,
        ranks,
        certainty,
        min(hang.since_s, hang.at_s),
        sentence(text),
        rule,
        evidence,
        signature=" ".join(f"{rule} {key}".split()),
    )


def shown_by(timeline: Timeline) -> Standstill:
    """Return what the last stacks show of the ranks that had not ended.

    Where the others went on while one made no step, they do not wait for it, whatever
    place their stacks have in common.
    """
    found = _standstill(timeline, timeline.stacks)
    return Standstill("apart", where=found.where) if _others_go_on(timeline) else found


def _standstill(timeline: Timeline, stacks: tuple[Process, ...]) -> Standstill:
    """Return what stacks show of the ranks that had not ended by themselves."""
    ended = {a.rank for a in accounts(timeline) if a.own}
    alive = {p.rank: p for p in stacks if not p.helper and p.rank not in ended}
    return standstill(alive, timeline.world_size - len(ended))


def goes_on(timeline: Timeline, rank: int) -> bool:
    """Return whether a rank made a step in the later half of a hang."""
    hang, beat = timeline.hang, timeline.beats.get(rank)
    if hang is None or beat is None or beat.progress_s is None:
        return False
    return beat.progress_s > (hang.since_s + hang.at_s) / 2


def _others_go_on(timeline: Timeline) -> bool:
    """Return whether some ranks hang, and all the others go on."""
    hung_ranks = set(timeline.hang.ranks) if timeline.hang is not None else set()
    rest = set(range(timeline.world_size)) - hung_ranks
    some = bool(hung_ranks) and bool(rest)
    return some and all(goes_on(timeline, rank) for rank in rest)


def same_twice(timeline: Timeline, now: Standstill) -> bool:
    """Return whether stacks said the same when the hang was first suspected."""
    if not now.where:
        return False
    before = _standstill(timeline, timeline.stacks_before)
    if (before.kind, before.ranks, before.op) != (now.kind, now.ranks, now.op):
        return False
    return all(
        before.where[rank].place == now.where[rank].place
        for rank in now.where
        if rank in before.where
    )


def of_waiting(timeline: Timeline, shown: Standstill) -> tuple[Evidence, ...]:
    """Return who waits where."""
    waiting = tuple(rank for rank in shown.waiting if shown.where[rank].place)
    by_place: dict[tuple[str, str], list[int]] = {}
    for rank in waiting:
        at = shown.where[rank]
        by_place.setdefault((at.waits_in, at.place), []).append(rank)
    same = " both when it was suspected and at the end"
    again = same if same_twice(timeline, shown) else ""
    return tuple(
        Evidence(
            "stack",
            f"rank{'s' if len(ranks) > 1 else ''} {listed(ranks)} "
            f"{_waits(ranks, op)} at {place}{again}",
            ranks[0] if len(ranks) == 1 else None,
            timeline.stacks_s,
        )
        for (op, place), ranks in list(by_place.items())[:PLACES_MAX]
    )


def _waits(ranks: list[int], op: str) -> str:
    many = len(ranks) > 1
    if not op:
        return "are" if many else "is"
    return f"{'wait' if many else 'waits'} in {op},"


def of_progress(
    timeline: Timeline, hang: Hang, ranks: tuple[int, ...]
) -> tuple[Evidence, ...]:
    """Return how long there was no step, and what a step takes."""
    usual = f" (usual step {hang.usual_s:.3g} s)" if hang.usual_s is not None else ""
    text = f"no progress for {duration(hang.at_s - hang.since_s)}{usual}"
    rank = ranks[0] if len(ranks) == 1 else None
    beat = timeline.beats.get(rank) if rank is not None else None
    if beat is not None and beat.heartbeat_s is not None:
        old_s = max(hang.at_s - beat.heartbeat_s, 0.0)
        goes_on = "heartbeats went on, last" if old_s < _GOES_ON_S else "last heartbeat"
        text = f"{text}; {goes_on} {duration(old_s)} before dsup acted"
    source = "heartbeat" if timeline.beats else "dsup"
    return (
        Evidence(
            "heartbeat" if source == "heartbeat" else "dsup", text, rank, hang.at_s
        ),
    )


def gone(timeline: Timeline) -> list[Account]:
    """Return the ranks that had ended with exit 0 by themselves."""
    return [a for a in accounts(timeline) if a.sort == "clean"]


def whereabouts_of(timeline: Timeline, ranks: tuple[int, ...]) -> Whereabouts:
    """Return where the first of these ranks is."""
    return whereabouts.of_rank(timeline, ranks[0]) if ranks else Whereabouts()


def at_place(at: Whereabouts) -> str:
    """Return `` at dataset.py:88``, a blank before it; nothing if it is not known."""
    return f" {at.said}" if at.said else ""


def at_places(timeline: Timeline, ranks: tuple[int, ...]) -> str:
    """Return where these ranks are, each one where they are not all at one place."""
    if together(timeline, ranks):
        return at_place(whereabouts_of(timeline, ranks))
    known = [(rank, whereabouts.of_rank(timeline, rank)) for rank in ranks]
    told = [f"rank {rank} {at.said}" for rank, at in known if at.said]
    more = ", ..." if len(told) > PLACES_MAX else ""
    return f" ({', '.join(told[:PLACES_MAX])}{more})"


def together(timeline: Timeline, ranks: tuple[int, ...]) -> bool:
    """Return whether these ranks are all at one place.

    Of several that did not come and are at different ones, one may wait for another.
    """
    return len({whereabouts.of_rank(timeline, rank).said for rank in ranks}) <= 1


def and_rest(timeline: Timeline, ranks: tuple[int, ...]) -> str:
    """Return ``, and the other 7 waited``; nothing where there is nobody else."""
    rest = timeline.world_size - len(ranks)
    return f", and {others(rest)} waited" if rest > 0 else ""


def hung(certainty: Certainty) -> str:
    """Return the verb for it, as sure as it is."""
    words = {"proven": "hung", "likely": "likely hung"}
    return words.get(certainty, "may have hung")


def named(op: str) -> str:
    """Return the name of what ranks wait in."""
    return f"{DDP}'s forward pass" if op == DDP else op


def line_of(place: str) -> str:
    """Return ``dataset.py:88`` of ``dataset.py:88 in read``."""
    return place.partition(" in ")[0]


def duration(seconds: float) -> str:
    """Return ``8.2 s``, ``152 s`` or ``35 min``."""
    if seconds < 10:  # noqa: PLR2004 (a tenth matters below that)
        return f"{max(seconds, 0.0):.1f} s"
    if seconds < 600:  # noqa: PLR2004 (ten minutes)
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min"
