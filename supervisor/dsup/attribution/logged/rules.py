"""The rules by which a log's attempt is judged, in order; the first that speaks wins.

Theory
------
Users paste the tail of a log and blame it; the last traceback is the launcher's, the
longest a victim's. So each statement is weighed first (``signs``): *own* signs are
those that no other rank's end leads to. Rules go from the job (somebody stopped it
before anything failed) over the machine (GPU, network port) and the first own sign to
what victims say: whom they accuse, how they differ, who is silent. A launcher's summary
comes next to last: its root cause is the lowest index of one look, not the first in
time.

Each rule is one pure function ``Reading -> Verdict | None`` with its symptom, its
source and its window in its docstring.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from dsup.attribution.logged import (
    calls,
    firsts,
    joins,
    losses,
    quoted,
    stops,
    waits,
)
from dsup.attribution.logged.signs import Reading
from dsup.core.verdict import Verdict

Rule: TypeAlias = Callable[[Reading], Verdict | None]

RULES: Final[tuple[Rule, ...]] = (
    # What dsup itself printed, and somebody who stopped the job.
    quoted.quoted,
    stops.hung_until_stopped,
    stops.stopped,
    # The machine's own word, then the first own sign.
    firsts.hardware,
    firsts.network_device,
    calls.mismatched,
    firsts.all_alike,
    firsts.raised,
    firsts.killed,
    firsts.crashed,
    firsts.said,
    # Victims: whom they name, how they differ, who is silent.
    losses.port_failed,
    waits.accused,
    joins.id_missing,
    joins.overfull,
    joins.not_joined,
    losses.early_exit,
    waits.lone_caller,
    waits.behind,
    waits.came_late,
    waits.silent,
    waits.stopped_moving,
    stops.interrupted,
    losses.summary,
    losses.store_gone,
    losses.node_gone,
    losses.peer_gone,
    waits.one_left,
    waits.nobody_came,
    losses.only_victims,
    losses.ended_by_launcher,
)
"""Tried from first to last; ``unknown`` speaks where none of them does."""
