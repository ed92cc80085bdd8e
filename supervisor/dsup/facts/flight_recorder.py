"""Traces of torch's flight recorder: which collectives a rank has called, as facts.

Each rank keeps its last collectives in a ring and dumps them as a pickle or as JSON. A
file of that form may come from anybody: what is read are plain data only, sizes are
capped, and every field is what it should be or is left out. Pure; linear in its input.

Source: torch's csrc/distributed/c10d/FlightRecorder.hpp, format 2.x.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from dsup.facts import plain_pickle
from dsup.facts.fields import loads, number, word
from dsup.facts.stacks import Frame

DUMP_MAX_BYTES: Final = 16 << 20
CALLS_MAX: Final = 256
"""So many of a rank's last calls are kept; the ring holds 2000."""

ENCODED_MAX_BYTES: Final = 1 << 20
"""What is kept of a rank's trace, however much longer than its dump it is."""

WORLD: Final = "default_pg"
"""What torch calls the group of all ranks."""

_ENTRIES_MAX: Final = 16_384
_GROUPS_MAX: Final = 256
_FRAMES_MAX: Final = 16
_RANKS_MAX: Final = 8192
_MEMBERS_MAX: Final = 65_536
"""Of all groups together: one text may stand for many of them."""

_SIZES_MAX_CHARS: Final = 80
_NAME_MAX_CHARS: Final = 80
_PATH_MAX_CHARS: Final = 500
_NUMBER_MAX: Final = 1 << 62
_LINE_MAX: Final = 1 << 31
_TRACES_MAX: Final = 8192
_RANK_NUMBER: Final = re.compile(r"\d{1,7}")


class Call(NamedTuple):
    """One collective, or one message between two ranks, as a rank has called it.

    Attributes:
        group: name of the process group.
        number: of the collective in its group, from 1.
        op: such as ``all_reduce``; of a message with its ends, ``send 0->1``.
        state: ``scheduled``, ``started`` or ``completed``.
        sizes: of its tensors and their types, as text.
        at_ns: when it was called, CLOCK_REALTIME; 0 if unknown.
        frames: the innermost first.
        message: it is one between two ranks.
    """

    group: str
    number: int
    op: str
    state: str
    sizes: str = ""
    at_ns: int = 0
    frames: tuple[Frame, ...] = ()
    message: bool = False


class Group(NamedTuple):
    """How far a rank has come in a process group.

    Attributes:
        text: what the program calls it; empty if it does not.
        enqueued, started, completed: numbers of the last collective; below 1 for none.
        ranks: its members; empty if unknown.
    """

    text: str = ""
    enqueued: int = -1
    started: int = -1
    completed: int = -1
    ranks: tuple[int, ...] = ()


class Trace(NamedTuple):
    """What a rank's recorder holds.

    Attributes:
        rank: whose it is.
        groups: by name.
        calls: the last ones, the oldest first.
        at_s: when it was asked for, agent clock, seconds; None if unknown.
    """

    rank: int
    groups: Mapping[str, Group] = {}
    calls: tuple[Call, ...] = ()
    at_s: float | None = None


def of_dump(raw: bytes, rank: int, at_s: float | None = None) -> Trace | None:
    """Return the trace in a dump; None if it is none, or not a whole one.

    Args:
        raw: the file.
        rank: whose it is.
        at_s: when it was asked for, agent clock, seconds.
    """
    told = _plain(raw)
    entries = told.get("entries")
    if not isinstance(entries, list) or "version" not in told:
        return None
    rows = [row for row in entries[-_ENTRIES_MAX:] if isinstance(row, dict)]
    groups = _groups(told, rows)
    calls = tuple(found for row in rows[-CALLS_MAX:] if (found := _call(row)))
    return Trace(rank, groups, calls, at_s)


def _plain(raw: bytes) -> dict[str, Any]:
    """Return the data in a dump, of either form; nothing if they are neither."""
    if len(raw) > DUMP_MAX_BYTES:
        return {}
    if raw[:1] == b"{":
        # A part takes far more memory than the two bytes that ask for it.
        parts = raw.count(b"{") + raw.count(b"[")
        return loads(raw) if parts <= plain_pickle.CONTAINERS_MAX else {}
    try:
        told = plain_pickle.loads(raw)
    except plain_pickle.PlainPickleError:
        return {}
    return told if isinstance(told, dict) else {}


def _groups(told: Mapping[str, Any], rows: list[dict[str, Any]]) -> dict[str, Group]:
    """Return each group's state by its calls: torch's own count also has messages.

    Only of the group of all ranks, where it has no calls any more, that count is used.
    """
    calls: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        name = _group_of(row)[0]
        if name in calls or len(calls) < _GROUPS_MAX:
            calls.setdefault(name, []).append(row)
    found = {name: _group(mine) for name, mine in calls.items()}
    counted = dict(_rows(told.get("pg_status")))
    room = _MEMBERS_MAX
    for name, row in _rows(told.get("pg_config")):
        if name not in found and row.get("desc") == WORLD and "0" in counted:
            found[name] = _by_count(counted["0"])
        if name in found and room > 0:
            ranks = word(row.get("ranks"), _RANKS_MAX * 8)
            members = sorted({int(n) for n in _RANK_NUMBER.findall(ranks)})
            room -= len(members)
            found[name] = found[name]._replace(ranks=tuple(members))
    return found


def _group(rows: list[dict[str, Any]]) -> Group:
    """Return a group by the calls that the ring still has of it."""
    made: dict[str, list[int]] = {"completed": [], "started": [], "scheduled": []}
    for row in rows:
        number_of = number(row.get("collective_seq_id"), _NUMBER_MAX)
        if number_of is not None and row.get("is_p2p") is not True:
            made.setdefault(_state(row), []).append(number_of)
    every = [one for those in made.values() for one in those]
    open_ones = [
        one for state, those in made.items() if state != "completed" for one in those
    ]
    done = max(made["completed"], default=min(every, default=0) - 1)
    begun = max(made["started"], default=-1)
    text = _group_of(rows[0])[1]
    done = min(done, min(open_ones, default=done + 1) - 1)
    return Group(text, max(every, default=-1), max(begun, done), done)


def _by_count(row: Mapping[str, Any]) -> Group:
    """Return a group by torch's own numbers, which JSON gives as texts."""
    names = ("enqueued", "started", "completed")
    enqueued, started, completed = (
        _count(row.get(f"last_{name}_collective")) for name in names
    )
    return Group(WORLD, enqueued, started, completed)


def _rows(told: object) -> Iterator[tuple[str, dict[str, Any]]]:
    rows = list(told.items())[:_GROUPS_MAX] if isinstance(told, dict) else []
    return ((key, row) for key, row in rows if isinstance(row, dict))


def _count(value: object) -> int:
    if isinstance(value, str) and value.isascii() and value.isdigit():
        value = int(value[:18])
    found = number(value, _NUMBER_MAX)
    return -1 if found is None else found


def _group_of(row: Mapping[str, Any]) -> tuple[str, str]:
    """Return a group's name and what the program calls it."""
    told = row.get("process_group")
    pair = list(told[:2]) if isinstance(told, list | tuple) else []
    name, text = (word(one, _NAME_MAX_CHARS) for one in (*pair, "", "")[:2])
    return name, "" if text == "undefined" else text


def _call(row: Mapping[str, Any]) -> Call | None:
    made = number(row.get("collective_seq_id"), _NUMBER_MAX)
    op = word(row.get("profiling_name"), _NAME_MAX_CHARS).rpartition(":")[2]
    if made is None or not op:
        return None
    return Call(
        _group_of(row)[0],
        made,
        op,
        _state(row),
        _sizes(row),
        number(row.get("time_created_ns"), _NUMBER_MAX) or 0,
        tuple(_frames(row.get("frames"))),
        row.get("is_p2p") is True,
    )


def _state(row: Mapping[str, Any]) -> str:
    """Return a call's state; gloo never tells, but takes what is done off its list."""
    gloo = str(row.get("profiling_name"))[:5] == "gloo:"
    if gloo and row.get("retired") is True:
        return "completed"
    return word(row.get("state"), _NAME_MAX_CHARS)


def _sizes(row: Mapping[str, Any]) -> str:
    """Return ``[4, 8] Float``, of what goes in."""
    shapes = ", ".join(_shapes(row.get("input_sizes")))
    types = row.get("input_dtypes")
    kinds = types[:1] if isinstance(types, list | tuple) else ()
    said = [shapes, *(word(kind, _NAME_MAX_CHARS) for kind in kinds)]
    return " ".join(filter(None, said))[:_SIZES_MAX_CHARS]


def _shapes(told: object) -> Iterator[str]:
    for shape in told[:4] if isinstance(told, list | tuple) else ():
        if isinstance(shape, list | tuple):
            sides = (number(side, _NUMBER_MAX) for side in shape[:8])
            yield f"[{', '.join('?' if n is None else str(n) for n in sides)}]"


def _frames(rows: object) -> Iterator[Frame]:
    for row in rows[:_FRAMES_MAX] if isinstance(rows, list | tuple) else ():
        if isinstance(row, dict):
            yield Frame(
                word(row.get("filename"), _PATH_MAX_CHARS),
                number(row.get("line"), _LINE_MAX) or 0,
                word(row.get("name"), _NAME_MAX_CHARS),
            )


def encode(traces: Iterable[Trace], most: int = ENCODED_MAX_BYTES) -> bytes:
    """Return traces as lines of JSON, one each.

    Args:
        traces: of one moment.
        most: so many bytes each: the oldest calls are left out first, then the members
            of groups, then all of it.
    """
    lines = (json.dumps(fitting(trace, most)).encode() for trace in traces)
    return b"".join(line + b"\n" for line in lines if len(line) < most)


def fitting(trace: Trace, most: int) -> Trace:
    """Return a trace with as many of its last calls as fit into so many bytes."""
    bare = trace._replace(calls=())
    left = most - len(json.dumps(bare)) - 2
    if left < 0:
        groups = {name: g._replace(ranks=()) for name, g in trace.groups.items()}
        return bare._replace(groups=groups)
    kept: list[Call] = []
    for call in reversed(trace.calls):
        left -= len(json.dumps(call)) + 2
        if left < 0:
            break
        kept.append(call)
    return trace._replace(calls=tuple(reversed(kept)))


def decode(raw: bytes) -> tuple[Trace, ...]:
    """Return what ``encode`` has made; what is not from there is left out."""
    found = []
    for line in raw.splitlines()[:_TRACES_MAX]:
        try:
            rank, groups, calls, at_s = json.loads(line)
            known = {name: _known_group(*row) for name, row in groups.items()}
            made = tuple(_known_call(*row) for row in calls)
        except (ValueError, TypeError, AttributeError, RecursionError):
            continue
        found.append(Trace(rank, known, made, at_s))
    return tuple(found)


def _known_group(*row: Any) -> Group:  # noqa: ANN401 (of our own aide)
    group = Group(*row)
    return group._replace(ranks=tuple(group.ranks))


def _known_call(*row: Any) -> Call:  # noqa: ANN401 (of our own aide)
    call = Call(*row)
    return call._replace(frames=tuple(Frame(*frame) for frame in call.frames))
