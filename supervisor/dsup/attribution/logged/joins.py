"""Rules about ranks that never made one group: too many joined, or too few."""

from __future__ import annotations

import math
import re
from typing import Final, NamedTuple

from dsup.attribution.logged.places import Fact
from dsup.attribution.logged.saying import Finding, verdict
from dsup.attribution.logged.signs import Reading
from dsup.attribution.wording import one_line, sentence, subject
from dsup.core.verdict import Evidence, Verdict

_LOOKED_AT_CHARS: Final = 2048
_BARRIER: Final = re.compile(r"world_size=(\d{1,7}), worker_count=(\d{1,7})")
_CLIENTS: Final = re.compile(r"(\d{1,7})/(\d{1,7}) clients joined")
_LATE: Final = ("timeout", "timed out")
_PUBLISHER: Final = re.compile(r"retrieving ncclUniqueId from \[(\d{1,6})\]")


class _Joined(NamedTuple):
    """How many processes joined a group, and how many it has room for."""

    joined: int
    room: int


def overfull(log: Reading) -> Verdict | None:
    """Name no rank where more processes joined a group than it has room for.

    Symptom: a rank waits in the store's barrier with a ``worker_count`` above its
    ``world_size``, gives up there, or the log ends there. Two launchers share a store,
    or it still holds an earlier run's ranks.
    """
    for text, fact in _waits(log):
        told = _joined(text)
        if told is None or told.joined <= told.room:
            continue
        said = f"{told.joined} processes joined a group that has room for {told.room}"
        if fact is not None:
            found = Finding("overfull", "config_error", (), "likely", fact, said)
            return verdict(log.attempt, found)
        return _of_line(log, ("overfull", "config_error"), said, text)
    return None


def not_joined(log: Reading) -> Verdict | None:
    """Name no rank where fewer processes joined a group than were waited for.

    Symptom: ``waiting for clients. 2/4 clients joined``, or the store's barrier with a
    ``worker_count`` below its ``world_size``. Who did not come is not in these words.
    """
    for text, fact in _waits(log):
        told = _joined(text)
        if told is None or told.joined >= told.room:
            continue
        said = f"Only {told.joined} of {told.room} ranks joined the group"
        if fact is not None:
            found = Finding("not_joined", "hang", (), "likely", fact, said)
            return verdict(log.attempt, found)
        return _of_line(log, ("not_joined", "hang"), said, text)
    return None


def id_missing(log: Reading) -> Verdict | None:
    """Name the rank that was to publish NCCL's id and did not.

    Symptom: ``retrieving ncclUniqueId from [0] via c10d key-value store``, and an
    error. After a time-out the rank in brackets is not there yet; otherwise it is gone,
    and the store with it.
    """
    for fact in log.lost:
        found = _PUBLISHER.search(fact.text[:2048])
        if found is not None and int(found[1]) != fact.place.rank:
            ranks = (int(found[1]),)
            late = any(words in fact.text.lower() for words in _LATE)
            text = f"{subject(ranks)} went before it had published NCCL's id"
            if late:
                text = f"{subject(ranks)} did not publish NCCL's id; the others waited"
            cause = "hang" if late else "store_lost"
            finding = Finding("id_missing", cause, ranks, "likely", fact, text)
            return verdict(log.attempt, finding)
    return None


def _waits(log: Reading) -> list[tuple[str, Fact | None]]:
    """Return what victims say, else how the log ends, the last statement first."""
    said: list[tuple[str, Fact | None]] = [(fact.text, fact) for fact in log.lost]
    if said or log.signs:
        return said
    return [(line, None) for line in reversed(log.attempt.last_lines)]


def _joined(text: str) -> _Joined | None:
    barrier = _BARRIER.search(text[:_LOOKED_AT_CHARS])
    if barrier is not None:
        return _Joined(int(barrier[2]), int(barrier[1]))
    clients = _CLIENTS.search(text[:_LOOKED_AT_CHARS])
    return _Joined(int(clients[1]), int(clients[2])) if clients is not None else None


def _of_line(log: Reading, named: tuple[str, str], said: str, line: str) -> Verdict:
    """Return a verdict on a log that just ends in a wait; rule and cause."""
    rule, cause = named
    return Verdict(
        log.attempt.number,
        cause,
        (),
        "likely",
        math.nan,
        sentence(f"{said}, and the log ends there"),
        rule,
        (Evidence("log", one_line(line)),),
    )
