"""What devices and the kernel say beside the proof: lines of evidence for a verdict."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from dsup.attribution import proof
from dsup.attribution.accounts import accounts
from dsup.attribution.devices import (
    Scene,
    in_time,
    owner,
    rank_of_pid,
    scene_of,
    users,
)
from dsup.attribution.timeline import Timeline
from dsup.attribution.wording import one_line
from dsup.core.exits import signal_name
from dsup.core.verdict import Evidence, Verdict
from dsup.facts.audit import Abend
from dsup.facts.hardware import GpuHealth, PortChange
from dsup.facts.incidents import Incident, incidents, together
from dsup.facts.kernel import KernelFault, Kind
from dsup.facts.nvml import NO_GPU
from dsup.facts.xids import catalogued

SUPPORT_MAX: Final = 8
_NOTES_MAX: Final = 2
_OF_DEVICES: Final = frozenset(
    {
        "abort",
        "cuda_error",
        "device_assert",
        "gpu_hardware",
        "hang",
        "nccl_network",
        "unkillable",
        "unknown",
    }
)
"""Causes that a device's word bears on."""

_OF_QUIET: Final = frozenset({"killed", "unknown"})
_SUPPORTS: Final[dict[Kind, frozenset[str]]] = {
    "io_error": frozenset({"storage_io", "disk_full", "checkpoint_error"}),
    "pids_limit": frozenset({"pids_limit"}),
    "ib_link": frozenset({"nccl_network"}),
    "lockup": frozenset({"hang", "nccl_network", "unknown"}),
    "hung_task": frozenset({"hang", "storage_io", "unkillable", "unknown"}),
    "sxid": frozenset({"gpu_hardware", "cuda_error", "nccl_network"}),
}
"""Causes that a kind of the kernel's lines bears on, whoever they name."""

_BUS_LOST: Final = 79


def supporting(timeline: Timeline, verdict: Verdict) -> tuple[Evidence, ...]:
    """Return what bears on a verdict beside its proof, each line once, a few."""
    known = {line.text for line in verdict.evidence}
    found: list[Evidence] = []
    for line in _support(timeline, verdict):
        if line.text not in known and len(found) < SUPPORT_MAX:
            known.add(line.text)
            found.append(line)
    return tuple(found)


def of_health(health: GpuHealth, ranks: tuple[int, ...] = ()) -> tuple[Evidence, ...]:
    """Return what NVML says of a GPU, and what is worth reading beside it."""
    rank = ranks[0] if len(ranks) == 1 else None
    notes = [f"GPU {health.gpu.number}: {note}" for note in health.notes[:_NOTES_MAX]]
    texts = [text for text in (health.text, *notes) if text]
    at_s = health.at_s if health.state == "bad" else None
    return tuple(Evidence("nvml", one_line(text), rank, at_s) for text in texts)


def of_port(port: PortChange) -> tuple[Evidence, ...]:
    """Return how a network port changed."""
    what = f"{port.device} port {port.port}: {port.what} {port.before} -> {port.after}"
    return (Evidence("sysfs", one_line(what)),)


def of_abend(abend: Abend, rank: int | None) -> tuple[Evidence, ...]:
    """Return an audit record of a death by a signal."""
    name = one_line(abend.comm or abend.exe, 40)
    text = f"pid {abend.pid} ({name}) died of {signal_name(abend.signum)}"
    at_s = None if abend.at_us is None else abend.at_us / 1e6
    return (Evidence("audit", one_line(text), rank, at_s),)


def of_meaning(number: int) -> tuple[Evidence, ...]:
    """Return what an Xid number means, from the catalogue."""
    xid = catalogued(number)
    text = f"Xid {number} means: {xid.meaning}; at fault: {xid.blames}; {xid.advice}"
    return (Evidence("dsup", one_line(text)),)


def of_named(incident: Incident) -> tuple[Evidence, ...]:
    """Return that an Xid is only known by a later line that names it."""
    text = f"the line of Xid {incident.number} itself is not in the log"
    return (Evidence("kernel", text),)


def of_ranks(timeline: Timeline, ranks: tuple[int, ...]) -> tuple[Evidence, ...]:
    """Return how the ranks ended that are named, else what the victims said."""
    chosen = [a for a in accounts(timeline) if a.rank in ranks]
    told = [a.told for a in chosen if a.told is not None]
    failed = [a for a in accounts(timeline) if a.failed]
    victims = () if chosen else proof.of_victims(timeline, failed)
    return (
        *(line for one in told for line in proof.of_raised(timeline, one)),
        *(line for a in chosen for line in proof.of_end(a)),
        *(
            line
            for stood in timeline.standing
            if stood.rank in ranks
            for line in proof.of_standing(stood)
        ),
        *victims,
    )


def of_quiet_gpus(timeline: Timeline) -> tuple[Evidence, ...]:
    """Return that NVML finds nothing wrong, or why it could not be asked."""
    if timeline.nvml and timeline.nvml != NO_GPU:
        return (Evidence("nvml", one_line(timeline.nvml)),)
    states = {health.state for health in timeline.gpu_health}
    if states == {"ok"}:
        return (Evidence("nvml", "NVML finds nothing wrong with any GPU"),)
    unknown = [h for h in timeline.gpu_health if h.state == "unknown"]
    return tuple(line for h in unknown[:2] for line in of_health(h)[:1])


def bus_errors(timeline: Timeline, root: KernelFault) -> list[KernelFault]:
    """Return fatal PCIe errors that are one incident with a GPU that left the bus."""
    if root.xid != _BUS_LOST:
        return []
    return [
        fault
        for fault in timeline.kernel
        if fault.kind == "aer" and fault.severity == "fatal" and together(root, fault)
    ]


def _support(timeline: Timeline, verdict: Verdict) -> Iterator[Evidence]:
    scene = scene_of(timeline)
    yield from _xids(scene, verdict)
    yield from _health(timeline, verdict)
    yield from _kernel(scene, verdict)
    yield from _abends(scene, verdict)
    if verdict.cause == "nccl_network":
        for port in timeline.ports:
            yield from of_port(port)
    if verdict.cause in _OF_QUIET:
        yield from of_quiet_gpus(timeline)
        if verdict.cause == "unknown" and not timeline.kernel and timeline.started_s:
            yield from _quiet_log(timeline)


def _xids(scene: Scene, verdict: Verdict) -> Iterator[Evidence]:
    """Yield the Xids of the GPUs of the first ranks, the first of each incident."""
    if verdict.cause not in _OF_DEVICES | {"killed"}:
        return
    for incident in incidents(scene.timeline.kernel):
        ranks = owner(scene.timeline, incident.root).ranks
        ours = set(ranks) & set(verdict.first_ranks)
        if ours and in_time(scene, incident.root, ranks):
            yield from proof.of_fault(incident.root, ranks[0])


def _health(timeline: Timeline, verdict: Verdict) -> Iterator[Evidence]:
    """Yield what NVML says of the GPUs of the first ranks, unless it is nothing."""
    if verdict.cause not in _OF_DEVICES:
        return
    for health in timeline.gpu_health:
        ranks = users(timeline, health.gpu.pci)
        notes = health.notes and verdict.cause in _OF_DEVICES
        telling = health.state == "bad" or notes
        if telling and set(ranks) & set(verdict.first_ranks):
            yield from of_health(health, ranks)


def _kernel(scene: Scene, verdict: Verdict) -> Iterator[Evidence]:
    for fault in scene.timeline.kernel:
        if verdict.cause not in _bears_on(fault):
            continue
        rank = rank_of_pid(scene.timeline, fault)
        ours = not verdict.first_ranks or rank in verdict.first_ranks
        if fault.kind == "hung_task" and (rank is None or not ours):
            continue
        if in_time(scene, fault, ()):
            yield from proof.of_fault(fault, rank)


def _bears_on(fault: KernelFault) -> frozenset[str]:
    """Return the causes that a line may bear on, whoever it names."""
    if fault.kind == "xid" and fault.xid is None:
        return _OF_DEVICES  # the driver gave a GPU up, for which no Xid has a number
    return _SUPPORTS.get(fault.kind, frozenset())


def _abends(scene: Scene, verdict: Verdict) -> Iterator[Evidence]:
    """Yield audit records of the first ranks' own processes, if they fit the end."""
    if not scene.timeline.host_pids:
        return
    own = {a.pid: a for a in scene.known if a.pid is not None}
    for abend in scene.timeline.abends:
        rank = scene.timeline.kin.get(abend.pid)
        account = own.get(abend.pid)
        if rank not in verdict.first_ranks and account is None:
            continue
        if account is not None and account.rank not in verdict.first_ranks:
            continue
        if account is None or account.status == -abend.signum:
            yield from of_abend(abend, rank if account is None else account.rank)


def _quiet_log(timeline: Timeline) -> Iterator[Evidence]:
    if not timeline.kernel_log:
        yield Evidence("kernel", "the kernel log tells of no fault")
