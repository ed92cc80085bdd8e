"""Rules about memory: who was killed for it, by whose word, and who was not.

Sources: Linux mm/oom_kill.c (the final line is not rate-limited, but some kills print
none), memory.events of cgroup v2 and memory.oom_control of v1 (counters need no
privileges and miss nothing).
"""

from __future__ import annotations

from typing import Final

from dsup.attribution import proof
from dsup.attribution.accounts import (
    OOM_KINDS,
    Account,
    accounts,
    counts,
    fault_s,
    leaders,
)
from dsup.attribution.growth import of_growth
from dsup.attribution.helpers import kin
from dsup.attribution.timeline import Counter, Timeline
from dsup.attribution.wording import (
    gib,
    one_line,
    sentence,
    subject,
    was,
)
from dsup.core.exits import SIGKILL
from dsup.core.verdict import Certainty, Evidence, Verdict
from dsup.facts.errors import cause_of
from dsup.facts.kernel import KernelFault

HELPER_S: Final = 60.0
"""A rank that still ran so long after a helper was killed did not fail of it."""

_DATALOADER_COMM: Final = "pt_data_worker"


def kernel_killed_rank(timeline: Timeline) -> Verdict | None:
    """Name the rank that the kernel killed for memory: its pid, and SIGKILL.

    Symptom: no words at all from the rank, a ``Killed process PID`` line. Several
    ranks: the kernel's first line was the first kill. Window: ``counts``.
    """
    found = [
        (_order(fault), account, fault)
        for account in leaders(timeline)
        if account.sort == "signal"
        for fault in _kills(timeline)
        if fault.pid == account.pid and _fits(timeline, account, fault)
    ]
    if not found:
        return None
    _, account, fault = min(found, key=lambda row: (row[0], row[1].rank))
    at_s = min(account.until_s, fault_s(fault) or account.until_s)
    evidence = (
        *proof.of_fault(fault, account.rank),
        *_risen(timeline, account.rank),
        *proof.of_end(account),
        *proof.of_silence(timeline, (account.rank,)),
        *of_growth(timeline, (account.rank,)),
        *proof.of_beat(timeline, account.rank),
    )
    return Verdict(
        timeline.attempt,
        "host_oom",
        (account.rank,),
        "proven",
        at_s,
        sentence(f"Rank {account.rank} was killed by the kernel: {_limit(fault)}"),
        "kernel_killed_rank",
        evidence,
        status=account.status if account.own else -SIGKILL,
        signature="oom rank",
    )


def kernel_killed_unseen_pid(timeline: Timeline) -> Verdict | None:
    """Name the SIGKILLed rank in whose cgroup the kernel killed a process.

    Symptom: dsup runs in a pid namespace, so the pid in the kernel's line is not the
    one that dsup knows; cgroup and wait status must do, and they do not prove it.
    """
    if timeline.host_pids:
        return None
    killed = _killed(timeline)
    for fault in _kills(timeline):
        inside = [
            account
            for account in killed
            if counts(timeline, fault, account.rank)
            and _same_cgroup(fault, timeline.cgroups.get(account.rank, ""))
        ]
        if inside:
            more = proof.of_fault(fault, None)
            text = "its cgroup and the kernel's line fit, pids cannot be compared"
            return _by_kernel(timeline, inside, "likely", text, more)
    return None


def kernel_killed_helper(timeline: Timeline) -> Verdict | None:
    """Name the rank one of whose own children the kernel killed for memory.

    Symptom: ``DataLoader worker (pid N) is killed by signal`` or a lost subprocess in
    the rank, and a line of the kernel's with the pid of a process seen below it, or of
    a worker that it names. The rank must have failed before any other, or be stuck
    while all others are victims. Window: ``HELPER_S`` before that.
    """
    if not timeline.host_pids:
        return None
    pids = {account.pid for account in accounts(timeline)}
    suspects = {a.rank: a for a in leaders(timeline) or _unexplained(timeline)}
    owners = kin(timeline)
    for fault in sorted(_kills(timeline), key=_order):
        rank = owners.get(fault.pid) if fault.pid is not None else None
        if rank in suspects and fault.pid not in pids:
            account = suspects[rank]
            if account.sort != "signal" and _precedes(timeline, account, fault):
                return _lost_helper(timeline, account, fault)
    return None


def counters_say_oom(timeline: Timeline) -> Verdict | None:
    """Name the SIGKILLed rank in whose cgroup ``oom_kill`` rose, log or no log.

    Symptom: the log is unreadable, or its line is lost; the counter is authoritative
    for the cgroup, but does not say which of its processes. A rise that the log
    explains by other processes is not this rank's. Where only the node's counter rose
    the kill may be anybody's: then it is a guess, and only with a silent log.
    """
    killed = _killed(timeline)
    if not killed:
        return None
    unexplained = [c for c in _oom_kills(timeline) if not _explained(timeline, c)]
    for counter in sorted(unexplained, key=lambda c: c.name == "vmstat_oom_kill"):
        inside = [a for a in killed if not counter.ranks or a.rank in counter.ranks]
        if inside:
            nodewide = counter.name == "vmstat_oom_kill"
            certainty: Certainty = "likely"
            if nodewide and not timeline.kernel_log:
                certainty = "guess"
            whose = "the node's oom_kill" if nodewide else "oom_kill"
            text = f"{whose} rose, {_log(timeline)}"
            more = proof.of_counter(counter)
            return _by_kernel(timeline, inside, certainty, text, more)
    return None


def killed_from_outside(timeline: Timeline) -> Verdict | None:
    """Name ranks that somebody SIGKILLed: not dsup, and not the kernel for memory.

    Symptom: SIGKILL, counters unchanged, a log that was read and names none of the
    rank's processes. The sender of a SIGKILL cannot be known: it may be the rank. What
    is proven is who did not send it. It is never called out of memory without a sign of
    it, and only likely where one could not be looked for.
    """
    killed = _killed(timeline)
    if not killed:
        return None
    ranks = tuple(a.rank for a in killed)
    unexplained = [c for c in _oom_kills(timeline) if not _explained(timeline, c)]
    known = timeline.counters_read and not timeline.kernel_log and not unexplained
    certainty: Certainty = "proven" if known and timeline.host_pids else "likely"
    but = "not dsup, not the OOM killer"
    if certainty != "proven":
        but = f"not dsup, likely not the OOM killer ({_doubt(timeline)})"
    evidence = (
        *(line for a in killed for line in proof.of_end(a)),
        *proof.of_silence(timeline, ranks),
        *proof.of_quiet_kernel(timeline),
        *of_growth(timeline, ranks),
        *(line for rank in ranks for line in proof.of_beat(timeline, rank)),
    )
    return Verdict(
        timeline.attempt,
        "killed",
        ranks,
        certainty,
        min(a.until_s for a in killed),
        sentence(f"{_who(timeline, ranks)} killed by SIGKILL of unknown sender: {but}"),
        "killed_from_outside",
        evidence,
        status=-SIGKILL,
        signature="SIGKILL",
    )


def _by_kernel(
    timeline: Timeline,
    killed: list[Account],
    certainty: Certainty,
    why: str,
    more: tuple[Evidence, ...],
) -> Verdict:
    """Return the verdict that the kernel killed one of these, by indirect proof."""
    ranks = tuple(a.rank for a in killed)
    hedge = "likely" if certainty == "likely" else "perhaps"
    text = f"{_who(timeline, ranks)} {hedge} killed by the kernel: {why}"
    evidence = (
        *more,
        *(line for a in killed for line in proof.of_end(a)),
        *proof.of_silence(timeline, ranks),
        *proof.of_quiet_kernel(timeline)[-1:],
        *of_growth(timeline, ranks),
    )
    return Verdict(
        timeline.attempt,
        "host_oom",
        ranks,
        certainty,
        min(a.until_s for a in killed),
        sentence(text),
        "counters_say_oom" if timeline.host_pids else "kernel_killed_unseen_pid",
        evidence,
        status=-SIGKILL,
        signature="oom rank",
    )


def _lost_helper(timeline: Timeline, account: Account, fault: KernelFault) -> Verdict:
    told = account.told
    loader = fault.comm is not None and fault.comm.startswith(_DATALOADER_COMM)
    if told is not None:
        cause = cause_of(told.type, told.text, told.causes)
        loader = loader or cause == "dataloader_worker"
    helper = "a DataLoader worker" if loader else _helper(fault)
    text = f"Rank {account.rank} lost {helper}: the kernel killed it, out of memory"
    evidence = (
        *proof.of_fault(fault, account.rank),
        *_risen(timeline, account.rank),
        *(proof.of_raised(timeline, told) if told else ()),
        *proof.of_end(account),
        *proof.of_silence(timeline, (account.rank,)),
        *of_growth(timeline, (account.rank,)),
    )
    return Verdict(
        timeline.attempt,
        "dataloader_worker" if loader else "host_oom",
        (account.rank,),
        "proven" if account.failed and account.sort != "communication" else "likely",
        fault_s(fault) or account.from_s,
        sentence(text),
        "kernel_killed_helper",
        evidence,
        status=account.status,
        signature="oom helper",
    )


def _kills(timeline: Timeline) -> list[KernelFault]:
    return [fault for fault in timeline.kernel if fault.kind in OOM_KINDS]


def _killed(timeline: Timeline) -> list[Account]:
    """Return the leading ranks that ended with SIGKILL by themselves."""
    return [
        a
        for a in leaders(timeline)
        if a.sort == "signal" and a.end is not None and a.end.status == -SIGKILL
    ]


def _fits(timeline: Timeline, account: Account, fault: KernelFault) -> bool:
    sigkill = account.end is None or account.end.status == -SIGKILL
    return timeline.host_pids and sigkill and counts(timeline, fault, account.rank)


def _precedes(timeline: Timeline, account: Account, fault: KernelFault) -> bool:
    """Return whether a helper was killed shortly before its rank failed."""
    at_s = fault_s(fault)
    soon = at_s is None or account.until_s - HELPER_S <= at_s <= account.until_s
    return soon and counts(timeline, fault, account.rank)


def _unexplained(timeline: Timeline) -> list[Account]:
    return [a for a in accounts(timeline) if a.sort != "clean"]


def _order(fault: KernelFault) -> tuple[bool, int]:
    """Return what orders faults: the sequence number, else time, else nothing."""
    number = fault.seq if fault.seq is not None else fault.at_us
    return number is None, number or 0


def _same_cgroup(fault: KernelFault, cgroup: str) -> bool:
    """Return whether a cgroup seen from inside a namespace may be the kernel's."""
    inner = cgroup.rstrip("/")
    return bool(fault.cgroup) and bool(inner) and str(fault.cgroup).endswith(inner)


def _oom_kills(timeline: Timeline) -> list[Counter]:
    names = {"oom_kill", "vmstat_oom_kill"}
    return [c for c in timeline.counters if c.name in names and c.after > c.before]


def _explained(timeline: Timeline, counter: Counter) -> bool:
    """Return whether the log names as many other processes as the counter rose by."""
    if not timeline.host_pids or timeline.kernel_log:
        return False
    return len(_kills(timeline)) >= counter.after - counter.before


def _risen(timeline: Timeline, rank: int) -> tuple[Evidence, ...]:
    return tuple(
        line
        for counter in _oom_kills(timeline)
        if not counter.ranks or rank in counter.ranks
        for line in proof.of_counter(counter)
    )


def _limit(fault: KernelFault) -> str:
    if fault.kind == "oom_global":
        return "the node had no memory left"
    if fault.limit_kb:
        return f"the cgroup reached its {gib(fault.limit_kb)} limit"
    return "its cgroup reached its memory limit"


def _helper(fault: KernelFault) -> str:
    name = f"{one_line(fault.comm, 20)}, " if fault.comm else ""
    return f"a process of its own ({name}pid {fault.pid})"


def _log(timeline: Timeline) -> str:
    if timeline.kernel_log:
        return "its log is incomplete" if timeline.kernel else "its log is unreadable"
    return "its log does not say whose"


def _doubt(timeline: Timeline) -> str:
    if timeline.kernel_log and not timeline.counters_read:
        return "the kernel's part could not be looked at"
    if timeline.kernel_log:
        return "the kernel log is unreadable"
    return "the kernel's counters are not conclusive"


def _who(timeline: Timeline, ranks: tuple[int, ...]) -> str:
    return f"{subject(ranks, timeline.world_size)} {was(ranks)}"
