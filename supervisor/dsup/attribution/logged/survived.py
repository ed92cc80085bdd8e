"""What a rank outlived: a sign is no end where steps go on behind it.

Symptom: an exception that was caught and logged, a warning that a write had failed, a
line of text that quotes a failure; then the same rank's steps rise again and again.
Source: a process that ended prints nothing more, but for what was still in its buffer.
Window: two rises of its own step; three of a log without ranks, where the others of the
world may finish the step at hand.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from dsup.attribution.logged.places import Fact, contradict
from dsup.facts.logs.said import Complaint, End, Error, LoggedAttempt, Progress

OWN_RISES: Final = 2
RISES: Final = 3
_NOBODY: Final = -1
_SUCCESS: Final = "worker group successfully finished"


def outlived(attempt: LoggedAttempt, fact: Fact) -> bool:
    """Return whether the rank of a statement, or all of them, trained on after it."""
    if isinstance(fact, End) and fact.source != "other":
        return False
    rank = fact.place.rank
    known = attempt.progress
    if rank is not None:
        return rank in known and _rose(known[rank], fact) >= OWN_RISES
    ranked = [one for number, one in known.items() if number != _NOBODY and one.rises]
    if ranked:
        return all(_rose(one, fact) >= RISES for one in ranked)
    return _NOBODY in known and _rose(known[_NOBODY], fact) >= RISES


def others_went_on(attempt: LoggedAttempt, fact: Fact) -> bool:
    """Return whether others trained on after a statement of a rank without steps.

    One step more of its own says the same.
    Often only one rank prints them; it cannot get far without the others. Its steps
    must have been seen before as well: else they may come out of a buffer.
    """
    if isinstance(fact, End) or fact.place.rank is None:
        return False
    own = attempt.progress.get(fact.place.rank)
    if own is not None and own.rises:
        return _rose(own, fact) > 0
    rest = [one for one in attempt.progress.values() if one.rises]
    if not rest:
        return False
    seen = all(one.began is not None and one.began < fact.order for one in rest)
    return seen and all(_rose(one, fact) >= RISES for one in rest)


def may_be_late(attempt: LoggedAttempt, fact: Fact, lost: Sequence[Fact]) -> bool:
    """Return whether what seems outlived may have ended its rank all the same.

    What a process had in its buffer is printed behind its last words. So it may be
    where a launcher tells of an end that fits; or where it is a traceback, others lost
    a peer, and none of them had trained on until then.
    """
    ends = [end for end in attempt.ends if end.status != 0 and not end.by_launcher]
    if any(not contradict(fact.place, end.place) for end in ends):
        return True
    if not isinstance(fact, Error) or not fact.frames or not lost:
        return False
    own = _NOBODY if fact.place.rank is None else fact.place.rank
    if own in attempt.progress and attempt.progress[own].done:
        return False
    rest = (one for rank, one in attempt.progress.items() if rank != own)
    limit = lost[0].order
    return not any(fact.order < at < limit for one in rest for at in one.rises)


def succeeded(attempt: LoggedAttempt) -> bool:
    """Return whether the launcher says that all went well, and tells of no failure.

    Source: torch.distributed.elastic's agent, whose last word it is.
    """
    failing = any(end.status != 0 for end in attempt.ends)
    said = any(_SUCCESS in text.lower() for text in attempt.last_lines[-2:])
    return said and not failing


def all_outlived(attempt: LoggedAttempt) -> bool:
    """Return whether every exception and complaint was outlived."""
    told: tuple[Error | Complaint, ...] = (*attempt.errors, *attempt.complaints)
    return all(outlived(attempt, fact) for fact in told)


def _rose(one: Progress, fact: Fact) -> int:
    """Return how often its step rose after a line of the same file; at most 4.

    Where it says that it had finished, once is enough.
    """
    if one.file != fact.file:
        return 0
    rises = sum(order > fact.order for order in one.rises)
    return RISES if one.done and rises else rises
