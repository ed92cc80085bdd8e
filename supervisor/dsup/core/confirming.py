"""When a hang is confirmed, and so acted upon. Pure.

A rank is frozen, or sleeps in the kernel, for a minute; stacks have shown who did not
come where all others wait; or a phase has outlasted its limit.
"""

from __future__ import annotations

from typing import Final

from dsup.core.patience import LONGEST_TIMES, is_away
from dsup.core.watch import FOR_PEOPLE, Absence, Finding, Suspicion, Watch, strongest

TRACED: Final = "t"
"""The state of a rank that somebody debugs."""

FROZEN_S: Final = 60.0
ABSENT_S: Final = 60.0

AT_WORK_S: Final = 600.0
"""All may wait so long for a rank that is at work: NCCL's own default time-out, after
which their collective fails in any case."""


def confirmed(watch: Watch, now_s: float, strain: float) -> Finding | None:
    """Return what is to be acted upon; None for nothing.

    Args:
        watch: as it is now.
        now_s: agent clock, seconds.
        strain: by what the node's overload stretches everything.
    """
    if any(one.look.state == TRACED for one in watch.pulses.values()):
        return None  # somebody debugs a rank, and the others wait for that
    # Overload freezes nobody: somebody has sent a signal.
    for kind, lasts_s in (("frozen", FROZEN_S), ("asleep", FROZEN_S * strain)):
        long = [
            s
            for s in watch.suspected.values()
            if s.kind == kind and now_s - s.since_s >= lasts_s
            if _counts(watch, s, now_s)
        ]
        if long:
            return Finding("confirmed", tuple(s.rank for s in long), kind, tuple(long))
    if watch.absent is not None and _never_came(watch, watch.absent, now_s, strain):
        return Finding("confirmed", watch.absent.ranks, "absent")
    over = [
        s
        for rank, s in watch.suspected.items()
        if (at_s := watch.outlasts_s(rank, strain)) is not None and now_s > at_s
    ]
    if not over:
        return None
    suspects = strongest({s.rank: s for s in over})
    return Finding(
        "confirmed", tuple(s.rank for s in suspects), "limit", tuple(suspects)
    )


def _counts(watch: Watch, doubt: Suspicion, now_s: float) -> bool:
    """Return whether something may be done on a suspicion.

    Whoever saves may sleep in the kernel for as long as the phase may last.
    """
    if doubt.kind in FOR_PEOPLE:
        return False
    pulse = watch.pulses[doubt.rank]
    return doubt.kind != "asleep" or not is_away(pulse, watch.limits, now_s)


def _never_came(watch: Watch, absent: Absence, now_s: float, strain: float) -> bool:
    pulses = watch.pulses
    if not any(_counts(watch, s, now_s) for s in watch.suspected.values()):
        return False
    missing = [pulses[rank] for rank in absent.ranks if rank in pulses]
    if any(is_away(one, watch.limits, now_s) for one in missing):
        return False
    longest_s = max((one.longest_s for one in pulses.values()), default=0.0)
    lasts_s = max(ABSENT_S, LONGEST_TIMES * longest_s) * strain
    worked_s = max(
        (watch.active[rank].lively_s for rank in absent.ranks if rank in watch.active),
        default=absent.since_s,
    )
    waits_s = min(
        max(absent.since_s, worked_s) + lasts_s,
        absent.since_s + max(lasts_s, AT_WORK_S * strain),
    )
    # Seen once more, late: whoever came since then is waited for no longer.
    proven_s = absent.seen_s - absent.since_s
    return now_s >= waits_s and lasts_s <= 2 * proven_s
