"""Numbers of the status table in few cells, and the document they are read from. Pure.

A document may come from a dsup of another version: what is not of the type that it is
said to have, counts as not known.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final, NamedTuple

from dsup.core.exits import signal_name
from dsup.core.printable import printable
from dsup.report.columns import TEXT_MAX_CHARS
from dsup.report.rank_rows import ENDED, TOLD_TO_END

UNKNOWN: Final = "?"
UNMEASURED: Final = "-"

_GIB_KB: Final = 1 << 20
_MINUTE_S: Final = 60
_HOUR_S: Final = 3600
_DAY_S: Final = 86400


class Row(NamedTuple):
    """A rank of the document; None for what is unknown or was not measured.

    Attributes:
        marked: what is said of it is worth a look.
    """

    rank: int
    pid: float | None
    gpu: float | None
    alive: bool
    status: float | None
    phase: str
    step: float | None
    beat_age_s: float | None
    step_age_s: float | None
    cpu_percent: float | None
    rss_kb: float | None
    kb_per_min: float | None
    ecc: str
    note: str
    marked: bool = False

    @property
    def remark(self) -> str:
        """What is worst about it; empty for nothing."""
        if self.note or self.status is None or self.status == 0:
            return self.note
        status = int(self.status)
        if status > 0:
            return f"exit code {status}"
        return f"killed by {signal_name(-status)}"


def number(found: object) -> float | None:
    """Return a plain number; None for all else."""
    if isinstance(found, bool) or not isinstance(found, int | float):
        return None
    return found if math.isfinite(found) else None


def word(found: object) -> str:
    """Return a text as a line that moves no cursor; empty for all else."""
    return printable(found[:TEXT_MAX_CHARS]) if isinstance(found, str) else ""


def part(document: Mapping[str, object], name: str) -> Mapping[str, object]:
    """Return an object in a document; empty where there is none."""
    found = document.get(name)
    return found if isinstance(found, dict) else {}


def parts(document: Mapping[str, object], name: str) -> list[Mapping[str, object]]:
    """Return the objects of a list in a document."""
    found = document.get(name)
    items = found if isinstance(found, list) else []
    return [item for item in items if isinstance(item, dict)]


def rows(document: Mapping[str, object]) -> list[Row]:
    """Return the ranks, in order.

    Of those that have ended the ones are marked that began it, once that is known; none
    that dsup itself ended is.
    """
    found = (_row(item) for item in parts(document, "ranks"))
    first = _first_ranks(document)
    marked = (
        row._replace(marked=_is_worth_a_look(row, first))
        for row in found
        if row is not None
    )
    return sorted(marked, key=lambda row: row.rank)


def _first_ranks(document: Mapping[str, object]) -> list[object]:
    """Return those that began the end of the attempt at hand; none if unknown."""
    failed = parts(document, "attempts")[-1:]
    for last in failed:
        ranks = last.get("first_ranks")
        if last.get("attempt") == document.get("attempt") and isinstance(ranks, list):
            return ranks
    return []


def _is_worth_a_look(row: Row, first: list[object]) -> bool:
    if row.remark in {"", ENDED, TOLD_TO_END}:
        return False
    return row.status is None or not first or row.rank in first


def _row(item: Mapping[str, object]) -> Row | None:
    rank = number(item.get("rank"))
    if rank is None:
        return None
    return Row(
        rank=int(rank),
        pid=number(item.get("pid")),
        gpu=number(item.get("gpu")),
        alive=item.get("state") == "alive",
        status=number(item.get("status")),
        phase=word(item.get("phase")),
        step=number(item.get("step")),
        beat_age_s=number(item.get("beat_age_s")),
        step_age_s=number(item.get("step_age_s")),
        cpu_percent=number(item.get("cpu_percent")),
        rss_kb=number(item.get("rss_kb")),
        kb_per_min=number(item.get("kb_per_min")),
        ecc=word(item.get("ecc")),
        note=word(item.get("note")),
    )


def whole(value: float | None, missing: str = UNMEASURED) -> str:
    """Return ``13420``: no commas, so that a search finds it."""
    return missing if value is None else f"{value:.0f}"


def age(seconds: float | None) -> str:
    """Return ``0.2s``, ``41s``, ``12min`` or ``3h``."""
    if seconds is None:
        return UNMEASURED
    if seconds < 9.95:  # noqa: PLR2004 (two digits)
        return f"{max(0.0, seconds):.1f}s"
    if seconds < 600:  # noqa: PLR2004 (ten minutes)
        return f"{seconds:.0f}s"
    if seconds < 10 * _HOUR_S:
        return f"{seconds / _MINUTE_S:.0f}min"
    return f"{seconds / _HOUR_S:.0f}h"


def gib(kb: float | None, missing: str = UNMEASURED) -> str:
    """Return ``34.1`` or ``365`` GiB: three digits, more only where they count."""
    if kb is None:
        return missing
    size = kb / _GIB_KB
    return f"{size:.0f}" if size >= 999.95 else f"{size:.1f}"  # noqa: PLR2004 (digits)


def slope(kb_per_min: float | None) -> str:
    """Return ``+7.2`` GiB a minute."""
    if kb_per_min is None:
        return UNMEASURED
    shown = f"{kb_per_min / _GIB_KB:+.1f}"
    return "+0.0" if shown == "-0.0" else shown


def lasting(seconds: float) -> str:
    """Return ``14 min 37 s``: two units at most."""
    left = round(seconds)
    for size, unit, below, under in (
        (_DAY_S, "d", _HOUR_S, "h"),
        (_HOUR_S, "h", _MINUTE_S, "min"),
        (_MINUTE_S, "min", 1, "s"),
    ):
        if left >= size:
            rest = left % size // below
            return f"{left // size} {unit}" + (f" {rest} {under}" if rest else "")
    return f"{max(0, left)} s"
