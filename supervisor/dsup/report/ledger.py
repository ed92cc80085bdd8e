"""Where the time went, as people and programs read it. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from dsup.core import journal
from dsup.core.errors import JournalError
from dsup.core.ledger import Balance, Ledger, happened, ordered

WORTH_SAYING_S: Final = 60.0
"""Of a run that lasted less nobody asks where its time went."""

NAMES: Final = {
    "recomputed": "steps done again",
    "start_up": "start-up",
    "detection": "detection",
    "teardown": "teardown",
    "pause": "pauses",
    "stopping": "stopping",
}
"""What people call what was lost, in the order of the page."""

_SHORT: Final = {**NAMES, "recomputed": "recomputed"}
_MINUTE_S: Final = 60.0
_HOUR_S: Final = 3600.0
_UNITS: Final = ((3 * _HOUR_S, _HOUR_S, "h"), (3 * _MINUTE_S, _MINUTE_S, "min"))


def of_journal(lines: Iterable[str]) -> Ledger:
    """Return the ledger of a journal, read as it is found.

    Args:
        lines: a journal, its header first; a line that came twice counts once.
    """
    ledger, last = Ledger(), 0
    for line in lines:
        often = journal.often(line)
        if often is not None:
            ledger = happened(ledger, often)
            continue
        try:
            entry = journal.decode(line)
        except JournalError:
            continue
        if entry.n <= last:
            continue
        last = entry.n
        if entry.event is not None:
            ledger = happened(ledger, entry.event)
        elif entry.command is not None:
            ledger = ordered(ledger, entry.command)
    return ledger


def document(found: Balance) -> dict[str, Any]:
    """Return the ``ledger`` of a status document.

    ``ettr`` is null, and ``by_steps`` false, where no rank told its steps.
    """
    ettr = found.ettr
    return {
        "wall_s": round(found.wall_s, 3),
        "productive_s": round(found.productive_s, 3),
        "ettr": None if ettr is None else round(ettr, 4),
        "by_steps": found.by_steps,
        "lost_s": {name: round(lost, 3) for name, lost in found.lost_s.items()},
    }


def line(found: Balance) -> str:
    """Return where the time of a run that is over went; empty if not worth a line."""
    smooth = found.attempts == 1 and not found.by_steps
    if found.wall_s < WORTH_SAYING_S or smooth:
        return ""
    share = 100 * found.productive_s / found.wall_s
    of_use = "new steps" if found.by_steps else "ranks alive (they tell no steps)"
    lost = _lost(found)
    return f"{spoken(found.wall_s)}, {share:.0f} % {of_use}{lost and f'; {lost}'}"


def spoken(seconds: float) -> str:
    """Return a length of time in its two largest units."""
    if seconds < 2 * _MINUTE_S:
        return f"{seconds:.0f} s"
    minutes = round(seconds / _MINUTE_S)
    if minutes < 2 * 60:
        return f"{minutes} min"
    hours, rest = divmod(minutes, 60)
    return f"{hours} h {rest} min" if rest else f"{hours} h"


def _lost(found: Balance) -> str:
    """Return what was lost, the largest part first, all of it in one unit."""
    whole_s = sum(found.lost_s.values())
    fits = ((unit_s, unit) for least_s, unit_s, unit in _UNITS if whole_s >= least_s)
    unit_s, unit = next(fits, (1.0, "s"))
    parts = sorted(found.lost_s.items(), key=lambda part: -part[1])
    told = [(_SHORT[name], round(lost / unit_s)) for name, lost in parts]
    named = ", ".join(f"{name} {size}" for name, size in told if size)
    return f"lost {whole_s / unit_s:.0f} {unit}: {named}" if named else ""
