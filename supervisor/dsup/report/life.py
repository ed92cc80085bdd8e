"""One attempt as a journal tells of it. Pure."""

from __future__ import annotations

from typing import NamedTuple, assert_never

from dsup.core import events as ev
from dsup.core.exits import heeds_stop, is_decisive
from dsup.core.state import Hang


class Life(NamedTuple):
    """One attempt.

    Attributes:
        pids: of each rank that was started.
        ends: of ranks, in the order in which they were seen.
        asked: ranks that dsup told to end, or that left when they were told to; all,
            once it killed what was left.
        own: ends that dsup had not asked for.
        cannot: what could not be done; None for nothing.
        judged: the judge's last answer; None for none.
        plan: what was agreed after it failed; None where nothing was.
        hang: what it was ended for while no rank had failed; None for nothing.
        leaving: its ranks were told to leave by themselves, because the run stops.
        started_s: when its first rank ran, agent clock, seconds; None for never.
        over_s: when nothing of it was left, on the same clock; None for unknown.
    """

    pids: dict[int, int]
    ends: list[ev.RankExited]
    asked: set[int]
    own: list[ev.RankExited]
    cannot: ev.Cannot | None = None
    judged: ev.Judged | None = None
    plan: ev.PlanAgreed | None = None
    hang: Hang | None = None
    leaving: bool = False
    started_s: float | None = None
    over_s: float | None = None


def new_life() -> Life:
    """Return an attempt of which nothing is known."""
    return Life({}, [], set(), [])


def first_failure(life: Life | None) -> ev.RankExited | None:
    """Return the end with which an attempt failed, as far as wait statuses tell.

    One that no other rank's end leads to goes first; None where no rank failed.
    """
    ends = [end for end in life.own if end.status != 0] if life else []
    decisive = (end for end in ends if is_decisive(end.status))
    return next(decisive, next(iter(ends), None))


def take_end(life: Life, event: ev.RankExited) -> None:
    """Take an end in; a rank that was dying before dsup's signal ended by itself.

    So it was if one that ended by itself was seen to end beside it; but not one that
    left when it was told to.
    """
    if life.leaving and heeds_stop(event.status):
        life.asked.add(event.rank)
        life.ends.append(event)
        return
    dying = any(event.rank in end.dying for end in life.own)
    if event.rank not in life.asked or dying:
        life.own.append(event)
    life.ends.append(event)


def take_word(
    life: Life, event: ev.Cannot | ev.Judged | ev.PlanAgreed | ev.Captured
) -> Life:
    """Return an attempt of which that is known as well."""
    match event:
        case ev.Captured():
            return life._replace(hang=_located(life.hang, event))
        case ev.Cannot():
            return life._replace(cannot=event)
        case ev.PlanAgreed():
            return life._replace(plan=event)
        case ev.Judged():
            return life._replace(judged=event) if event.cause else life
        case _:
            assert_never(event)


def _located(hang: Hang | None, found: ev.Captured) -> Hang | None:
    """Return a hang with what the last stacks have shown of it."""
    if hang is None or not found.final or not found.ranks:
        return hang
    return Hang(found.ranks, "absent", hang.at_s, found.op, found.place)
