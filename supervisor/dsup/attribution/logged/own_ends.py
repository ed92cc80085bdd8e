"""Which of the ends that launchers tell of they had not brought about themselves."""

from __future__ import annotations

from collections.abc import Iterator

from dsup.core.exits import SIGKILL, SIGTERM
from dsup.facts.logs.said import End, LoggedAttempt


def own_ends(attempt: LoggedAttempt) -> Iterator[End]:
    """Yield the failures that a launcher had not brought about itself.

    A process that it sent a signal, and that its summary says died of SIGTERM or
    SIGKILL, did not die of anything else.
    """
    signalled: dict[tuple[str, int], int] = {}
    for end in attempt.ends:
        if end.by_launcher:
            for name in names_of(end):
                signalled.setdefault(name, end.order)
    for end in attempt.ends:
        if end.by_launcher or end.status == 0:
            continue
        sent = [signalled[name] for name in names_of(end) if name in signalled]
        if end.status in {-SIGTERM, -SIGKILL} and sent and min(sent) < end.order:
            continue
        yield end


def names_of(end: End) -> set[tuple[str, int]]:
    """Return what an end is known by: an agent's line and its summary tell of one."""
    place = end.place
    known = (("rank", place.rank), ("pid", place.pid), ("local", place.local_rank))
    names = {(name, number) for name, number in known if number is not None}
    if place.rank is not None or place.pid is not None:
        names = {(name, number) for name, number in names if name != "local"}
    return names
