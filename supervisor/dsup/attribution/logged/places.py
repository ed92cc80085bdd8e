"""Which rank a statement is of, where its prefixes alone do not tell.

A launcher's agent knows local ranks and pids, PyTorch's messages name GPUs. Each
becomes a global rank only where nothing else can be meant.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, TypeAlias, TypeVar

from dsup.facts.logs.line import Place
from dsup.facts.logs.said import (
    Collective,
    Complaint,
    End,
    Error,
    LoggedAttempt,
)

Fact: TypeAlias = Error | End | Complaint | Collective
F = TypeVar("F", Error, End, Complaint, Collective)

FIRST_FACTS: Final = 1000
LAST_FACTS: Final = 500
"""So many of each kind are judged by: the first tell the cause, the last the ends."""

_GPU: Final = re.compile(r"\bGPU (\d{1,3})(?: has a total|;)")
_NAMED: Final = re.compile(r"(?:\[?rank|Rank|RANK)[ =]?(\d{1,6})[\]:,]")
_OF_ITSELF: Final = re.compile(r"\b(?:grad for|on) [Rr]ank:? (\d{1,6})\b")
_LOOKED_AT_CHARS: Final = 600
_MESSAGE_CHARS: Final = 8192


class _Hands(NamedTuple):
    """What a rank can be told from: pids, GPUs, one node alone, the world's size."""

    pids: Mapping[int, int]
    gpus: frozenset[int]
    alone: bool
    world: int | None


def settled(attempt: LoggedAttempt) -> LoggedAttempt:
    """Return an attempt whose facts bear a global rank wherever the log tells it.

    Looked at in this order: the prefix, the process id, the local rank on the only
    node, the rank that the message itself begins with, the GPU that it names.
    """
    alone = one_node(attempt)
    pids = _pids(attempt, alone=alone)
    gpus = _gpus(attempt)
    hands = _Hands(pids, gpus if alone else frozenset(), alone, attempt.world_size)
    return attempt._replace(
        errors=_settled(attempt.errors, hands),
        ends=_settled(attempt.ends, hands),
        complaints=_settled(attempt.complaints, hands),
        collectives=_settled(attempt.collectives, hands),
    )


def one_node(attempt: LoggedAttempt) -> bool:
    """Return whether all that the log tells of can be one node's.

    A local rank is a global one only then: no global rank differs from its local one,
    the world is no larger than the node, and no second node is named.
    """
    places = [fact.place for fact in everything(attempt)]
    if any(_differ(place) for place in places):
        return False
    world, local = attempt.world_size, attempt.local_world_size
    if world is not None and local is not None:
        return world == local
    return len({_host(place.node) for place in places if place.node}) <= 1


def everything(attempt: LoggedAttempt) -> tuple[Fact, ...]:
    """Return all facts of an attempt that are of some process."""
    return (
        *attempt.errors,
        *attempt.ends,
        *attempt.complaints,
        *attempt.collectives,
    )


def contradict(one: Place, other: Place) -> bool:
    """Return whether two places cannot be one process."""
    pairs = (
        (one.rank, other.rank),
        (one.local_rank, other.local_rank),
        (one.pid, other.pid),
    )
    return any(a is not None and b is not None and a != b for a, b in pairs)


def _settled(facts: tuple[F, ...], hands: _Hands) -> tuple[F, ...]:
    room = max(len(facts) - LAST_FACTS, FIRST_FACTS)
    kept = facts[:FIRST_FACTS] + facts[room:]
    return tuple(_with_rank(fact, hands) for fact in kept)


def _with_rank(fact: F, hands: _Hands) -> F:
    place = fact.place
    if place.rank is not None:
        return fact
    rank = hands.pids.get(place.pid) if place.pid is not None else None
    if rank is None and place.local_rank is not None:
        rank = place.local_rank if hands.alone else None
    elif rank is None:
        rank = _of_text(fact.text, hands.gpus)
    if rank is None and hands.world == 1:
        rank = 0
    return fact if rank is None else fact._replace(place=place._replace(rank=rank))


def _of_text(text: str, gpus: frozenset[int]) -> int | None:
    """Return the rank of the message's own words.

    ``Rank 21: found NaN`` is its speaker's. A GPU's number is a local rank, but for
    number 0 alone: where each process sees one GPU only, all of them call it 0.
    """
    begin = text[:_LOOKED_AT_CHARS].lstrip()
    named = _NAMED.match(begin) or _OF_ITSELF.search(text[:_MESSAGE_CHARS])
    if named is not None:
        return int(named[1])
    gpu = _GPU.search(begin)
    index = int(gpu[1]) if gpu is not None else -1
    return index if index in gpus and max(gpus) > 0 else None


def _gpus(attempt: LoggedAttempt) -> frozenset[int]:
    """Return the GPUs that messages about device memory name."""
    texts = (error.text[:_LOOKED_AT_CHARS] for error in attempt.errors)
    found = (_GPU.search(text) for text in texts if "out of memory" in text.lower())
    return frozenset(int(match[1]) for match in found if match is not None)


def _pids(attempt: LoggedAttempt, *, alone: bool) -> Mapping[int, int]:
    """Return the rank of each process id that the log joins with one, and only one."""
    known: dict[int, set[int]] = {}
    for fact in _by_pid(attempt):
        place = fact.place
        rank = place.rank
        if rank is None and alone:
            rank = place.local_rank
        if place.pid is not None and rank is not None:
            known.setdefault(place.pid, set()).add(rank)
    return {pid: ranks.pop() for pid, ranks in known.items() if len(ranks) == 1}


def _by_pid(attempt: LoggedAttempt) -> Iterable[Fact]:
    return (fact for fact in everything(attempt) if fact.place.pid is not None)


def _differ(place: Place) -> bool:
    known = place.rank is not None and place.local_rank is not None
    return known and place.rank != place.local_rank


def _host(node: str) -> str:
    return node.partition(".")[0]
