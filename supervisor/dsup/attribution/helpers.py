"""Whose processes below a rank are: helpers that were seen, or that it tells of."""

from __future__ import annotations

from dsup.attribution.accounts import accounts
from dsup.attribution.timeline import Timeline
from dsup.facts.errors import worker_pids
from dsup.facts.raised import Raised


def kin(timeline: Timeline) -> dict[int, int]:
    """Return the rank of each process of the run, by pid.

    Those that were seen below a rank, and DataLoader workers whose end a rank tells of:
    one that is born and dies between two looks is seen by nobody else. What was seen
    goes before what is told.
    """
    told = {
        pid: account.rank
        for account in accounts(timeline)
        if account.told is not None
        for pid in workers(account.told)
    }
    return {**told, **timeline.kin}


def workers(told: Raised) -> tuple[int, ...]:
    """Return the pids of the DataLoader workers whose end an exception tells of."""
    texts = (told.text, *(text for _, text in told.causes))
    return tuple(pid for text in texts for pid in worker_pids(text))
