"""The rule about ranks that have a cgroup of their own: its counter names the rank.

Source: memory.events of cgroup v2. ``oom_kill`` counts the processes that belonged to
the cgroup and were killed for memory, whichever limit above was hit.
"""

from __future__ import annotations

from dsup.attribution import proof
from dsup.attribution.accounts import OOM_KINDS, Account, leaders
from dsup.attribution.growth import of_growth
from dsup.attribution.timeline import Counter, Timeline
from dsup.attribution.wording import sentence, subject, was
from dsup.core.cgroups import of_rank
from dsup.core.exits import SIGKILL
from dsup.core.verdict import Verdict


def own_cgroup_says_oom(timeline: Timeline) -> Verdict | None:
    """Name the SIGKILLed rank whose own cgroup counted an OOM kill, log or no log.

    Symptom: SIGKILL, and ``oom_kill`` of a cgroup in which only that rank and its
    helpers live has risen. It needs neither the kernel log nor pids that can be
    compared. A rise that a readable log explains by helpers is not the rank's.
    """
    found = [
        (account, counter)
        for account in leaders(timeline)
        for counter in _rises(timeline, account.rank)
        if _was_killed(account) and not _of_helpers(timeline, account, counter)
    ]
    if not found:
        return None
    ranks = tuple(account.rank for account, _ in found)
    who = f"{subject(ranks, timeline.world_size)} {was(ranks)}"
    evidence = (
        *(line for _, counter in found for line in proof.of_counter(counter)),
        *(line for account, _ in found for line in proof.of_end(account)),
        *proof.of_silence(timeline, ranks),
        *of_growth(timeline, ranks),
    )
    return Verdict(
        timeline.attempt,
        "host_oom",
        ranks,
        "proven",
        min(account.until_s for account, _ in found),
        sentence(f"{who} killed by the kernel: out of memory, by its cgroup's count"),
        "own_cgroup_says_oom",
        evidence,
        status=-SIGKILL,
        signature="oom rank",
    )


def _rises(timeline: Timeline, rank: int) -> list[Counter]:
    own = f"/{of_rank(rank)}/"
    return [
        counter
        for counter in timeline.counters
        if counter.name == "oom_kill" and own in counter.where
    ]


def _was_killed(account: Account) -> bool:
    ended = account.end is not None and account.end.status == -SIGKILL
    return ended and account.sort == "signal"


def _of_helpers(timeline: Timeline, account: Account, counter: Counter) -> bool:
    """Return whether the log names as many others as the counter rose by."""
    if not timeline.host_pids or timeline.kernel_log:
        return False
    others = [
        fault
        for fault in timeline.kernel
        if fault.kind in OOM_KINDS and fault.pid != account.pid
    ]
    return len(others) >= counter.after - counter.before
