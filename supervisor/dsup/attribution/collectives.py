"""What flight recorders show of a run that stands still: who did not come. Pure.

In a process group all ranks call the same collectives in the same order, and the
recorder numbers them. So the lowest number that some rank has not called while others
wait in it tells who is missing; the same number with another function, or another size,
tells who took another branch; and a number that all have called and none has finished
tells that nobody is missing. A rank that waits in one group is not the one that another
group waits for: it is followed to whoever waits nowhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Final, Literal, NamedTuple, TypeAlias

from dsup.facts.flight_recorder import WORLD, Call, Group, Trace

Kind: TypeAlias = Literal[
    "absent",  # these ranks have not called what the others wait in
    "mismatch",  # ranks have called different things by the same number
    "not_started",  # these ranks' devices have not begun what the others' have
    "everyone",  # all are in the same, and none has finished
    "circle",  # ranks wait for each other in different groups
    "none",  # nobody waits
]

SAME_SIZE: Final = frozenset({"all_reduce", "broadcast", "reduce"})
"""What all ranks call with tensors of the same size."""


class Stuck(NamedTuple):
    """One process group that stands still.

    Attributes:
        ranks: who is the cause; empty where nobody can be named.
        waiting: who waits.
        group: its name.
        text: what the program calls it; empty if it does not.
        number: of the collective.
        op: what most have called; empty if unknown.
        others: of each of ``ranks``, what it has called instead; empty where nothing.
        last: of each of ``ranks``, the number of the last collective it has finished.
        silent: members that gave no trace.
    """

    kind: Kind
    ranks: tuple[int, ...] = ()
    waiting: tuple[int, ...] = ()
    group: str = ""
    text: str = ""
    number: int = 0
    op: str = ""
    others: Mapping[int, str] = {}
    last: Mapping[int, int] = {}
    silent: tuple[int, ...] = ()


def stuck(traces: Mapping[int, Trace], world_size: int) -> Stuck:
    """Return what the traces of ranks at one moment show.

    Args:
        traces: by rank.
        world_size: ranks of the run.
    """
    names = sorted({name for trace in traces.values() for name in trace.groups})
    seen = [_group(name, traces, world_size) for name in names]
    seen += _messages(traces)
    found = [one for one in seen if one.kind != "none"]
    if not found:
        return Stuck("none")
    told = [one for one in found if one.kind == "mismatch"]
    if told:
        return min(told, key=lambda one: -len(one.waiting))
    return _followed(found)


def all_inside(found: Stuck, ranks: Collection[int]) -> bool:
    """Return whether these ranks are all inside of a collective that none finishes."""
    return found.kind == "everyone" and bool(ranks) and set(ranks) <= set(found.waiting)


def _followed(found: list[Stuck]) -> Stuck:
    """Return the group whose missing ranks wait in no other one."""
    waiting = {rank for one in found for rank in one.waiting}
    free = [
        one._replace(ranks=mine)
        for one in found
        if one.kind == "absent"
        and (mine := tuple(rank for rank in one.ranks if rank not in waiting))
    ]
    if free:
        return max(free, key=lambda one: len(one.waiting))
    missing = [one for one in found if one.kind == "absent"]
    if missing and not any(one.silent for one in found):
        return missing[0]._replace(kind="circle", ranks=())
    slow = [one for one in found if one.kind == "not_started"]
    return max(slow or found, key=lambda one: len(one.waiting))


def _group(name: str, traces: Mapping[int, Trace], world_size: int) -> Stuck:
    members = _members(name, traces, world_size)
    at = {r: traces[r].groups.get(name, Group()) for r in members if r in traces}
    silent = tuple(rank for rank in members if rank not in traces)
    if len(members) < 2 or not at:  # noqa: PLR2004
        return Stuck("none")
    text = next((one.text for one in at.values() if one.text), "")
    base = Stuck("none", group=name, text=text, silent=silent)
    calls = {rank: _calls(traces[rank], name) for rank in at}
    return (
        _mismatch(base, at, calls)
        or _absent(base, at, calls)
        or _unfinished(base, at, calls)
        or base
    )


def _members(
    name: str, traces: Mapping[int, Trace], world_size: int
) -> tuple[int, ...]:
    """Return who belongs to a group: as told, else all, else who has called in it."""
    groups = [t.groups[name] for t in traces.values() if name in t.groups]
    told = {rank for group in groups for rank in group.ranks if rank < world_size}
    if told:
        return tuple(sorted(told))
    if any(group.text == WORLD for group in groups):
        return tuple(range(world_size))
    return tuple(sorted(rank for rank, t in traces.items() if name in t.groups))


def _calls(trace: Trace, name: str) -> dict[int, tuple[Call, ...]]:
    """Return the collectives of a group by number; several where they are coalesced."""
    found: dict[int, tuple[Call, ...]] = {}
    for call in trace.calls:
        if call.group == name and not call.message:
            found[call.number] = (*found.get(call.number, ()), call)
    return found


def _mismatch(
    base: Stuck,
    at: Mapping[int, Group],
    calls: Mapping[int, Mapping[int, tuple[Call, ...]]],
) -> Stuck | None:
    """Return the first number, not finished by all, that is not the same on all."""
    done = min(group.completed for group in at.values())
    front = min(group.enqueued for group in at.values())
    for number in range(max(done, front - 256, 0) + 1, front + 1):
        there = {r: mine[number] for r, mine in calls.items() if number in mine}
        made = {r: _names(those) for r, those in there.items()}
        if len(set(made.values())) < 2:  # noqa: PLR2004
            made = {r: _form(those) for r, those in there.items()}
        if len(set(made.values())) < 2:  # noqa: PLR2004
            continue
        (usual, many), (_, second) = Counter(made.values()).most_common(2)
        odd = tuple(r for r in sorted(made) if made[r] != usual)
        return base._replace(
            kind="mismatch",
            ranks=odd if many > second else (),
            waiting=tuple(r for r in sorted(at) if at[r].completed < number),
            number=number,
            op=usual,
            others={r: made[r] for r in (odd if many > second else sorted(made))},
            last={rank: at[rank].completed for rank in odd},
        )
    return None


def _names(made: tuple[Call, ...]) -> str:
    """Return what was called by one number; several where they are coalesced."""
    return " + ".join(dict.fromkeys(call.op for call in made))


def _form(made: tuple[Call, ...]) -> str:
    """Return a call as far as it must be the same on all ranks."""
    told = [
        f"{call.op} of {call.sizes}" if call.op in SAME_SIZE and call.sizes else call.op
        for call in made
    ]
    return " + ".join(dict.fromkeys(told))


def _absent(
    base: Stuck,
    at: Mapping[int, Group],
    calls: Mapping[int, Mapping[int, tuple[Call, ...]]],
) -> Stuck | None:
    front = min(group.enqueued for group in at.values())
    number = max(front, 0) + 1
    waiting = tuple(r for r in sorted(at) if at[r].enqueued >= number > at[r].completed)
    missing = tuple(r for r in sorted(at) if at[r].enqueued < number)
    if not waiting or not missing:
        return None
    return base._replace(
        kind="absent",
        ranks=missing,
        waiting=waiting,
        number=number,
        op=_usual(number, calls),
        last={rank: at[rank].completed for rank in missing},
    )


def _unfinished(
    base: Stuck,
    at: Mapping[int, Group],
    calls: Mapping[int, Mapping[int, tuple[Call, ...]]],
) -> Stuck | None:
    """Return what all have called and nobody has finished."""
    number = min(group.completed for group in at.values()) + 1
    if any(group.enqueued < number for group in at.values()):
        return None
    inside = tuple(rank for rank in sorted(at) if at[rank].completed < number)
    late = tuple(rank for rank in inside if at[rank].started < number)
    known = base._replace(waiting=inside, number=number, op=_usual(number, calls))
    # Only where the recorder was told to, it knows when a device begins.
    if late and len(late) < len(inside) and len(late) < len(at):
        waiting = tuple(rank for rank in inside if rank not in late)
        last = {rank: at[rank].completed for rank in late}
        return known._replace(
            kind="not_started", ranks=late, waiting=waiting, last=last
        )
    return known._replace(kind="everyone")


def _usual(number: int, calls: Mapping[int, Mapping[int, tuple[Call, ...]]]) -> str:
    """Return what most ranks have called by a number."""
    ops = Counter(_names(mine[number]) for mine in calls.values() if number in mine)
    return ops.most_common(1)[0][0] if ops else ""


def _messages(traces: Mapping[int, Trace]) -> Iterable[Stuck]:
    """Yield who waits for a message of whom, where that one does not take part."""
    open_ones = {
        rank: [c for c in trace.calls if c.message and c.state != "completed"]
        for rank, trace in traces.items()
    }
    for rank, calls in sorted(open_ones.items()):
        for call in calls[:1]:
            peer = _peer(call, traces[rank].groups.get(call.group, Group()))
            theirs = open_ones.get(peer, [])
            if peer in traces and not any(c.group == call.group for c in theirs):
                group = traces[rank].groups.get(call.group, Group())
                yield Stuck(
                    "absent",
                    (peer,),
                    (rank,),
                    call.group,
                    group.text,
                    call.number,
                    call.op.partition(" ")[0],
                )


def _peer(call: Call, group: Group) -> int:
    """Return the rank at the other end of a message: ``send 0->1``, ``recv 1<-0``."""
    verb, _, ends = call.op.partition(" ")
    _, arrow, other = ends.partition("->" if verb == "send" else "<-")
    known = arrow and other.isascii() and other.isdigit() and len(other) < 8  # noqa: PLR2004
    place = int(other) if known else -1
    if group.ranks:
        return group.ranks[place] if 0 <= place < len(group.ranks) else -1
    return place
