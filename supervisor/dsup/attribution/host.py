"""Rules about the host: its memory's hardware, its storage, and tasks that are stuck.

Sources: Linux mm/memory-failure.c (a process that uses broken memory gets SIGBUS and is
named by pid), arch/x86/kernel/cpu/mce, block/blk-core.c and the NFS client (lines about
storage name no process), kernel/hung_task.c (a line names a thread that slept for two
minutes).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from dsup.attribution import proof
from dsup.attribution.accounts import (
    Account,
    accounts,
    all_are_victims,
    counts,
    fault_s,
    leaders,
)
from dsup.attribution.devices import in_time, rank_of_pid, scene_of
from dsup.attribution.timeline import Standing, Timeline
from dsup.attribution.wording import one_line, sentence, subject, was
from dsup.core.exits import SIGBUS, SIGKILL
from dsup.core.verdict import Certainty, Verdict
from dsup.facts.kernel import KernelFault

_MEMORY_KINDS: Final = frozenset({"mce", "ecc_mem"})
_MEMORY_SIGNALS: Final = frozenset({-SIGBUS, -SIGKILL})
_ASLEEP: Final = "D"
_LOOKED_AT_CHARS: Final = 4096
_STORAGE_WORDS: Final = (
    "[errno 5]",
    "[errno 30]",
    "[errno 107]",
    "[errno 116]",
    "[errno 121]",
    "input/output error",
    "read-only file system",
    "stale file handle",
    "remote i/o error",
)
"""What storage that failed looks like to a program, in lower case."""


def memory_broke(timeline: Timeline) -> Verdict | None:
    """Name the rank that the kernel ended because memory it used is broken.

    Symptom: ``Memory failure`` or a machine check with the pid of the rank or of a
    process or thread below it, then SIGBUS (or SIGKILL, where the page could not be
    taken away). It is a ``sigbus`` of the node's own memory, not a full /dev/shm; the
    causes keep ``gpu_hardware`` for GPUs. An uncorrected error that names no process is
    only likely. Corrected errors explain no death. Window: ``counts``.
    """
    dead = [a for a in leaders(timeline) if a.status in _MEMORY_SIGNALS and a.own]
    for fault, account in _broken(timeline, dead):
        by_name = rank_of_pid(timeline, fault) == account.rank
        certainty: Certainty = "proven" if by_name else "likely"
        where = f" ({one_line(fault.device, 60)})" if fault.device else ""
        text = f"memory of the node{where} is broken"
        end = "SIGBUS" if account.status == -SIGBUS else "SIGKILL"
        likely = "" if by_name else "likely "
        return Verdict(
            timeline.attempt,
            "sigbus",
            (account.rank,),
            certainty,
            min(fault_s(fault) or account.until_s, account.until_s),
            sentence(f"Rank {account.rank} {likely}got {end} because {text}"),
            "memory_broke",
            (
                *proof.of_fault(fault, account.rank),
                *proof.of_end(account),
                *proof.of_silence(timeline, (account.rank,)),
            ),
            status=account.status,
            signature="memory of the node",
        )
    return None


def storage_failed(timeline: Timeline) -> Verdict | None:
    """Name the ranks that storage failed, by the kernel's word and their own.

    Symptom: I/O errors, a file system that was made read-only or a server that does not
    answer in the kernel log, and either an exception with EIO, EROFS or ESTALE in a
    leading rank, or ranks asleep in the kernel (state D) while the others wait. The
    kernel names no process, so sleeping ranks are only likely. Window: ``in_time``.
    """
    scene = scene_of(timeline)
    faults = [
        f for f in timeline.kernel if f.kind == "io_error" and in_time(scene, f, ())
    ]
    if not faults:
        return None
    told = _tellers(timeline)
    asleep = [s for s in timeline.standing if s.state == _ASLEEP]
    if not told and not (asleep and all_are_victims(timeline)):
        return None
    ranks = tuple(a.rank for a in told) or tuple(sorted(s.rank for s in asleep))
    raised = [a.told for a in told if a.told is not None]
    device = one_line(faults[0].device, 60)
    what = f"storage ({device})" if device else "storage"
    verb = "failed" if told else "likely failed"
    how = f"{subject(ranks, timeline.world_size)} {was(ranks)} asleep in the kernel"
    how = f"{subject(ranks, timeline.world_size)} got I/O errors" if told else how
    evidence = (
        *(line for fault in faults[:3] for line in proof.of_fault(fault, None)),
        *(line for one in raised for line in proof.of_raised(timeline, one)),
        *(line for s in asleep if not told for line in proof.of_standing(s)),
        *(line for a in told for line in proof.of_end(a)),
        *proof.of_full_spaces(timeline),
    )
    return Verdict(
        timeline.attempt,
        "storage_io",
        ranks,
        "proven" if told else "likely",
        min(a.until_s for a in accounts(timeline) if a.failed),
        sentence(f"{how}: {what} {verb}: {one_line(faults[0].text, 120)}"),
        "storage_failed",
        evidence,
        status=told[0].status if told else 1,
        signature=f"storage {device}".strip(),
    )


def stuck_in_kernel(timeline: Timeline) -> Verdict | None:
    """Name ranks one of whose threads the kernel calls stuck, while the others waited.

    Symptom: ``task … blocked for more than 120 seconds`` with a thread of a rank that
    had not ended when all others lost it. The state of its main thread need not show
    it. Likely. Window: ``in_time``.
    """
    if not all_are_victims(timeline):
        return None
    scene = scene_of(timeline)
    alive = {s.rank: s for s in _silent(timeline)}
    stuck = [
        (fault, alive[rank])
        for fault in timeline.kernel
        if fault.kind == "hung_task" and in_time(scene, fault, ())
        if (rank := rank_of_pid(timeline, fault)) in alive
    ]
    if not stuck:
        return None
    ranks = tuple(sorted({stood.rank for _, stood in stuck}))
    failed = [a for a in accounts(timeline) if a.failed]
    it = "a thread of it was" if len(ranks) == 1 else "threads of them were"
    text = (
        f"{subject(ranks, timeline.world_size)} likely hung: {it} stuck in the kernel"
    )
    return Verdict(
        timeline.attempt,
        "hang",
        ranks,
        "likely",
        min(a.until_s for a in failed),
        sentence(text),
        "stuck_in_kernel",
        (
            *(line for f, s in stuck for line in proof.of_fault(f, s.rank)),
            *(line for _, s in stuck for line in proof.of_standing(s)),
            *proof.of_victims(timeline, failed),
        ),
        signature="stuck_in_kernel",
    )


def _broken(
    timeline: Timeline, dead: list[Account]
) -> Iterator[tuple[KernelFault, Account]]:
    """Yield memory errors with the rank they ended, those that name it first."""
    faults = [f for f in timeline.kernel if f.kind in _MEMORY_KINDS]
    grave = [f for f in faults if f.severity != "corrected"]
    for fault in grave:
        rank = rank_of_pid(timeline, fault)
        yield from (
            (fault, a)
            for a in dead
            if a.rank == rank and counts(timeline, fault, a.rank)
        )
    for fault in grave:
        if fault.pid is None and fault.severity in {"nonfatal", "fatal"}:
            yield from (
                (fault, a)
                for a in dead
                if a.status == -SIGBUS and counts(timeline, fault, a.rank)
            )


def _silent(timeline: Timeline) -> Iterator[Standing]:
    """Yield ranks that stood when dsup first signalled, and had told nothing."""
    known = {a.rank: a for a in accounts(timeline)}
    return (s for s in timeline.standing if known[s.rank].sort == "none")


def _tellers(timeline: Timeline) -> list[Account]:
    """Return the leading ranks if all of them, or all that failed, tell of storage."""
    failed = [a for a in accounts(timeline) if a.failed]
    if all(map(_tells, failed)):
        return failed
    first = leaders(timeline)
    return list(first) if all(map(_tells, first)) else []


def _tells(account: Account) -> bool:
    """Return whether a rank's own exception is one of storage that failed."""
    told = account.told
    if told is None or account.sort != "exception":
        return False
    links = (told.text, *(text for _, text in told.causes))
    said = " ".join(links)[:_LOOKED_AT_CHARS].lower()
    return any(word in said for word in _STORAGE_WORDS)
