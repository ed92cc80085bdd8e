"""Whose a device is: GPUs and processes in the kernel's lines, joined to ranks. Pure.

A GPU is joined by its PCI address, which the kernel and NVML both print. The process
in an Xid line is the owner of the channel, or a bystander that happened to call the
driver, or nobody: it counts only where it is a process of a rank, and no monitor.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from dsup.attribution.accounts import (
    KERNEL_CLOCK_S,
    Account,
    accounts,
    earliest,
    fault_s,
    words,
)
from dsup.attribution.timeline import Timeline
from dsup.attribution.wording import listed
from dsup.facts.errors import cause_of
from dsup.facts.incidents import is_monitor
from dsup.facts.kernel import KernelFault

_OF_DEVICES: Final = frozenset({"cuda_error", "gpu_hardware"})


class Scene(NamedTuple):
    """A timeline with what is asked of it for every line of a long log.

    Attributes:
        known: the accounts of its ranks.
        first: its leaders.
        moments: when each rank ended or got dsup's first signal, whichever was first.
    """

    timeline: Timeline
    known: tuple[Account, ...]
    first: tuple[Account, ...]
    moments: Mapping[int, float]


class Owner(NamedTuple):
    """Whose GPU a line is about.

    Attributes:
        ranks: those that use it; empty where none does, or nobody knows.
        known: whether that is known: a GPU that no rank uses is a stranger's.
    """

    ranks: tuple[int, ...]
    known: bool


def scene_of(timeline: Timeline) -> Scene:
    """Return a timeline with what is asked of it more than once."""
    known = accounts(timeline)
    moments = {
        a.rank: min(a.until_s, timeline.signalled.get(a.rank, math.inf)) for a in known
    }
    return Scene(timeline, known, earliest(a for a in known if a.strong), moments)


def owner(timeline: Timeline, fault: KernelFault) -> Owner:
    """Return which ranks use the GPU of a line."""
    by_pci = users(timeline, fault.pci)
    if by_pci:
        return Owner(by_pci, known=True)
    rank = rank_of_pid(timeline, fault)
    mapped = rank is not None and rank in timeline.gpus and bool(fault.pci)
    if rank is not None and not mapped:
        return Owner((rank,), known=True)
    whole = bool(fault.pci) and len(timeline.gpus) >= timeline.world_size
    return Owner((), known=whole)


def users(timeline: Timeline, pci: str | None) -> tuple[int, ...]:
    """Return the ranks that use the GPU at a PCI address."""
    if not pci:
        return ()
    return tuple(sorted(r for r, gpu in timeline.gpus.items() if gpu.pci == pci))


def rank_of_pid(timeline: Timeline, fault: KernelFault) -> int | None:
    """Return the rank that a line's process belongs to; None for none of them."""
    if fault.pid is None or not timeline.host_pids or is_monitor(fault.comm):
        return None
    return timeline.kin.get(fault.pid)


def named(timeline: Timeline, ranks: tuple[int, ...], pci: str | None) -> str:
    """Return ``rank 3's GPU 5 (0000:a1:00)``, as much of it as is known."""
    where = f" ({pci})" if pci else ""
    if not ranks:
        return f"the GPU at {pci}" if pci else "a GPU"
    gpu = next((timeline.gpus[r] for r in ranks if r in timeline.gpus), None)
    number = f" {gpu.number}" if gpu is not None and gpu.pci == pci else ""
    if len(ranks) == 1:
        return f"rank {ranks[0]}'s GPU{number}{where}"
    return f"GPU{number}{where} of ranks {listed(ranks)}"


def told_of_device(timeline: Timeline, account: Account) -> bool:
    """Return whether a rank's own words are those of a failed device."""
    told = account.told
    if told is not None:
        links = ((told.type, told.text), *told.causes)
        return any(cause_of(*link) in _OF_DEVICES for link in links)
    last = words(timeline, account.rank)
    return cause_of("", " ".join((last.crash, *last.lines, last.line))) in _OF_DEVICES


def unfailed(scene: Scene, ranks: Iterable[int]) -> bool:
    """Return whether each of these ranks is known to have ended well."""
    named_ranks = set(ranks)
    chosen = [a for a in scene.known if a.rank in named_ranks]
    return bool(chosen) and all(a.sort == "clean" for a in chosen)


def in_time(scene: Scene, fault: KernelFault, ranks: Iterable[int]) -> bool:
    """Return whether a line may tell why these ranks failed, or any if none is given.

    Window: from the start of the attempt to the first of their ends, and of dsup's
    signals; 2 s wider at both ends for the kernel's clock. A line without a time fits.
    """
    at_s = fault_s(fault)
    if at_s is None:
        return True
    chosen = [scene.moments[rank] for rank in ranks if rank in scene.moments]
    first_s = min(chosen or scene.moments.values(), default=at_s)
    early = at_s < scene.timeline.started_s - KERNEL_CLOCK_S
    return not early and at_s <= first_s + KERNEL_CLOCK_S


def tellers(scene: Scene) -> tuple[int, ...]:
    """Return the leading ranks whose own words are those of a failed device."""
    return tuple(a.rank for a in scene.first if told_of_device(scene.timeline, a))


def is_open(scene: Scene) -> bool:
    """Return whether ranks failed, and none of a thing that is not of a device."""
    failed = any(a.failed for a in scene.known)
    return failed and all(told_of_device(scene.timeline, a) for a in scene.first)


def failed(scene: Scene) -> list[Account]:
    """Return the accounts of ranks that failed by themselves."""
    return [a for a in scene.known if a.failed]


def failed_since(scene: Scene, ranks: tuple[int, ...]) -> float:
    """Return when the first of these ranks ended, or any; agent clock, seconds."""
    known = [a for a in scene.known if a.rank in ranks]
    chosen = known or failed(scene)
    at_s = min((a.until_s for a in chosen), default=math.inf)
    return at_s if math.isfinite(at_s) else scene.timeline.started_s


def status_of(scene: Scene, ranks: tuple[int, ...]) -> int:
    """Return the status of the first of these ranks; 1 where it has no end."""
    return next((a.status for a in scene.known if a.rank in ranks), 1)
