"""A rank's flight recorder as people read it: a line a group, and its last calls."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from dsup.core.printable import printable
from dsup.facts.flight_recorder import Call, Group, Trace

CALLS_SHOWN: Final = 8


def lines(trace: Trace) -> Iterator[str]:
    """Yield how far a rank has come in each group, and what it has called last."""
    for name, group in trace.groups.items():
        yield printable(f"flight recorder of rank {trace.rank}, {_group(name, group)}")
    for call in trace.calls[-CALLS_SHOWN:]:
        yield printable(f"  {_call(call)}")


def _group(name: str, group: Group) -> str:
    text = f" ({group.text})" if group.text else ""
    called = f"#{group.enqueued} called" if group.enqueued > 0 else "nothing called"
    done = f"#{group.completed} finished" if group.completed > 0 else "none finished"
    return f"group {name or '?'}{text}: {called}, {done}"


def _call(call: Call) -> str:
    sizes = f" {call.sizes}" if call.sizes else ""
    place = next((f.place for f in call.frames if "/torch/" not in f.file), "")
    at = f", at {place}" if place else ""
    return f"#{call.number} {call.op}{sizes}, group {call.group}, {call.state}{at}"
