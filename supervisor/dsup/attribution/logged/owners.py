"""Whose a sign is that bears no rank: what launchers tell of ends is joined to it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from dsup.attribution.logged.places import contradict
from dsup.attribution.logged.signs import SIGABRT, Reading, Sign
from dsup.core.exits import SIGNALLED, SIGTERM
from dsup.facts.logs.said import End

NEAR_S: Final = 5.0
"""One failure's statements stand within so much of each other."""


def owners(log: Reading, group: Sequence[Sign]) -> tuple[int, ...]:
    """Return the global ranks whose signs these are; empty where nothing tells.

    In this order: the signs' own; another own sign of the same cause; the only end
    that the launcher tells of, or the only earliest one by its time; all ends of one
    second, where it has several. A summary's "root cause" among equal times names the
    lowest index, so it decides nothing.
    """
    known = {sign.rank for sign in group if sign.rank is not None}
    if known:
        return tuple(sorted(known))
    return _kin(log, group[0]) or _ended_first(log, group[0])


def ended_first(ends: Sequence[End]) -> tuple[End, ...]:
    """Return the earliest of these ends, by rank; all that share its second.

    Ends without a time count only where none has one: a summary has times, the lines
    around it may be cut.
    """
    timed = [end for end in ends if end.at_s is not None]
    # Of a rank that is told of twice, by the agent and in its summary, the earlier one
    # counts: it is put in last.
    late_first = sorted(timed, key=lambda end: -(end.at_s or 0.0)) or reversed(ends)
    known = {end.place.rank: end for end in late_first}
    limit_s = math.floor(min((e.at_s or 0.0 for e in timed), default=0.0)) + 1
    return tuple(e for e in known.values() if e.at_s is None or e.at_s < limit_s)


def _kin(log: Reading, first: Sign) -> tuple[int, ...]:
    """Return the rank of other signs of this cause, where it is one rank alone."""
    ranks = {
        sign.rank
        for sign in log.signs
        if sign.rank is not None
        and sign.cause == first.cause
        and not contradict(sign.fact.place, first.fact.place)
        and _near(sign, first)
    }
    return (ranks.pop(),) if len(ranks) == 1 else ()


def _near(sign: Sign, first: Sign) -> bool:
    if sign.at_s is None or first.at_s is None:
        return True
    return sign.at_s - first.at_s <= NEAR_S


def _ended_first(log: Reading, first: Sign) -> tuple[int, ...]:
    """Return the ranks of the earliest ends that may be this process's."""
    victims = {fact.place.rank for fact in log.lost}
    fitting = [
        end
        for end in log.ends
        if end.place.rank is not None
        and end.place.rank not in victims
        and not contradict(end.place, first.fact.place)
        and _fits(end, first)
    ]
    ranks = {end.place.rank for end in ended_first(fitting)}
    tasks = all(end.source == "srun" and end.at_s is None for end in fitting)
    if tasks and len(ranks) > 1:  # srun ends the tasks that lost one, with code 1
        return ()
    return tuple(sorted(rank for rank in ranks if rank is not None))


def _fits(end: End, sign: Sign) -> bool:
    """Return whether a process that said this ends with that status."""
    if end.status is None:
        return True
    if sign.status < 0:
        return end.status in {sign.status, SIGNALLED - sign.status}
    if sign.sort == "exception":
        return end.status > 0 or end.status == -SIGABRT
    return end.status != -SIGTERM
