"""How dsup's own lines are worded, and which of them are said. Pure."""

from __future__ import annotations

from typing import Final

from dsup.core import events as ev
from dsup.core.job import Level, Voice
from dsup.core.output import Tone
from dsup.report.sentences import ranks

_SEVERITY: Final = {"plain": "info", "warning": "warning", "failure": "error"}


def is_said(tone: Tone, level: Level) -> bool:
    """Return whether a line is said at all: the quiet leave out what went well."""
    return level != "quiet" or tone != "plain"


def worded(text: str, tone: Tone, voice: Voice, wall_s: float) -> str:
    """Return a line as it is printed.

    Args:
        text: what is to be said.
        tone: how grave it is.
        voice: in which form.
        wall_s: the time, CLOCK_REALTIME.
    """
    if not voice.json:
        return f"dsup: {text}"
    import json
    from datetime import UTC, datetime

    stamp = datetime.fromtimestamp(wall_s, UTC).isoformat(timespec="microseconds")
    fields = {"time": stamp, "level": _SEVERITY[tone], "program": "dsup"}
    return json.dumps({**fields, "message": text})


def detail(event: ev.Event) -> str:  # noqa: C901 (one case an event)
    """Return what only the verbose say of an event; empty for nothing."""
    match event:
        case ev.RankStarted():
            return f"rank {event.rank} is pid {event.pid}"
        case ev.RankExited() if event.status == 0:
            return f"rank {event.rank} ended with exit code 0"
        case ev.Stepped():
            return f"every rank has finished step {event.step}"
        case ev.Progressed():
            return f"every rank finished step {event.step}"
        case ev.SelfStopping():
            return f"{ranks(event.ranks)} can stop at a step"
        case ev.ChecksCounted():
            return f"the ranks leave their loops at check {event.last + 1}"
        case ev.HangSuspected() | ev.HangCleared() | ev.Captured():
            from dsup.report import hangs

            return hangs.detail(event)
        case ev.Straggles():
            return f"rank {event.rank} keeps up with its peers again"
        case ev.Scanned():
            return f"newest checkpoint: {event.path or 'none'}"
        case _:
            return ""
