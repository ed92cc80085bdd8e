"""What findings of the vigil become: events for the machine, a hang for the judge."""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import TYPE_CHECKING

from dsup.attribution.timeline import Hang
from dsup.core import events as ev
from dsup.core.watch import Absence

if TYPE_CHECKING:
    from dsup.core.watch import Finding, Watch
    from dsup.facts.captured import Found


def event_of(found: Finding, watch: Watch, attempt: int, now_s: float) -> ev.Event:
    """Return the event that a finding is.

    Args:
        found: by the vigil.
        watch: of the attempt.
        attempt: its number.
        now_s: agent clock, seconds.
    """
    match found.kind:
        case "suspected":
            since_s, usual_s = _since(watch, found.ranks)
            return ev.HangSuspected(
                "hang_suspected",
                now_s,
                attempt,
                found.ranks,
                found.why,
                since_s,
                usual_s,
            )
        case "cleared":
            return ev.HangCleared("hang_cleared", now_s, attempt, found.ranks)
        case "confirmed":
            return ev.HangConfirmed(
                "hang_confirmed", now_s, attempt, found.ranks, found.why
            )


def hang_of(found: Finding, watch: Watch, now_s: float) -> Hang:
    """Return what the judge is to know of a hang that was confirmed."""
    return Hang(found.ranks, found.why, now_s, *_since(watch, found.ranks))


def _since(watch: Watch, ranks: Collection[int]) -> tuple[float, float | None]:
    """Return the last sign of any of these ranks, and the usual step time."""
    doubts = [watch.suspected[rank] for rank in ranks if rank in watch.suspected]
    usual = [
        pulse.usual_s
        for rank in ranks
        if (pulse := watch.pulses.get(rank)) and pulse.usual_s is not None
    ]
    since_s = max((doubt.since_s for doubt in doubts), default=time.monotonic())
    return since_s, min(usual, default=None)


def absence(found: Found, before: Absence | None, now_s: float) -> Absence | None:
    """Return who did not come, by the last stacks, and since when that is so."""
    if not found.ranks:
        return None
    same = before is not None and before.ranks == found.ranks
    since_s = before.since_s if before is not None and same else now_s
    return Absence(found.ranks, since_s, found.place, now_s)


def at_work_still(
    found: Found, progress_s: Collection[tuple[int, float]], taken_s: float
) -> bool:
    """Return whether ranks made steps that are said to wait for those missing.

    Args:
        found: what stacks have shown.
        progress_s: when each rank made its last step, agent clock, seconds.
        taken_s: when the stacks were ordered.
    """
    return any(at_s > taken_s for rank, at_s in progress_s if rank not in found.ranks)
