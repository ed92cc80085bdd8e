"""Rules about GPUs by the kernel's word: Xid and SXid.

Sources: https://docs.nvidia.com/deploy/xid-errors/ (which numbers are of the hardware),
NVIDIA's open kernel modules (an Xid sends no signal: CUDA calls fail, and the process
dies of its own exception or hangs), public reports. What a program can bring about by
itself (Xid 13, 31, 43) never makes a GPU guilty, and Xid 45 and 154 only follow others.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from dsup.attribution import hardware_proof, proof
from dsup.attribution.accounts import KERNEL_CLOCK_S, fault_s
from dsup.attribution.devices import (
    Scene,
    failed,
    failed_since,
    in_time,
    is_open,
    named,
    owner,
    scene_of,
    status_of,
    tellers,
    unfailed,
)
from dsup.attribution.timeline import Timeline
from dsup.attribution.wording import hedge, one_line, sentence
from dsup.core.verdict import Certainty, Evidence, Verdict
from dsup.facts.incidents import Incident, incidents, together
from dsup.facts.kernel import KernelFault
from dsup.facts.sxids import catalogued as switch_catalogued
from dsup.facts.sxids import is_fatal
from dsup.facts.xids import catalogued, is_device

_NONFATAL: Final = ("nonfatal", "non-fatal")
_MILD: Final = frozenset({64})
"""The work on the GPU may go on after these."""

_OF_PROGRAMS: Final = frozenset({13, 31, 43})
_OF_ONE_PROCESS: Final = frozenset({"process"})


class _Case(NamedTuple):
    """An incident of a GPU that may be the cause.

    Attributes:
        ranks: that use the GPU; empty where that is not known.
    """

    incident: Incident
    ranks: tuple[int, ...]


def gpu_failed(timeline: Timeline) -> Verdict | None:
    """Name the ranks whose GPU failed by the kernel's word, before they ended.

    Symptom: an Xid of the hardware, of the GPU's firmware or of NVLink, the first of
    its incident; ranks then raise CUDA errors, abort, or hang. It goes before their
    traceback. Joined by PCI address, else by a pid that is a rank's own; where the GPU
    of each rank is known, another one's Xid is a stranger's. With a link both ends that
    complain are named. A fatal PCIe error within 5 s is the same incident. Window:
    ``in_time``, and not after another rank had failed of something of its own.
    """
    grave = [i for i in incidents(timeline.kernel) if is_device(i.number)]
    scene = scene_of(timeline)
    found = [case for i in grave if (case := _case(scene, i)) is not None]
    if not found:
        return None
    first = found[0]
    alike = [case for case in found if _alike(first, case)]
    ranks = tuple(sorted({rank for case in alike for rank in case.ranks}))
    guessed = ranks or tellers(scene)
    number = first.incident.number
    root = first.incident.root
    certainty: Certainty = "proven" if ranks and not _is_mild(first) else "likely"
    evidence = (
        *(line for case in alike for line in _of_case(timeline, case)),
        *hardware_proof.of_meaning(number),
        *hardware_proof.of_ranks(timeline, guessed),
    )
    return Verdict(
        timeline.attempt,
        "gpu_hardware",
        guessed,
        certainty,
        fault_s(root) or failed_since(scene, guessed),
        sentence(_text(timeline, alike, certainty)),
        "gpu_failed",
        evidence,
        status=status_of(scene, guessed),
        signature=f"Xid {number}",
    )


def fabric_failed(timeline: Timeline) -> Verdict | None:
    """Say that the NVLink fabric failed, by the word of a switch.

    Symptom: a fatal SXid of an NVSwitch; ranks report CUDA errors or closed
    connections. The line names no GPU, so no rank can be named, but for those that
    told of their device first. Window: ``in_time``.
    """
    scene = scene_of(timeline)
    fatal = [
        fault
        for fault in timeline.kernel
        if fault.kind == "sxid"
        and is_fatal(fault.xid, fault.severity)
        and in_time(scene, fault, ())
    ]
    if not fatal or not is_open(scene):
        return None
    first, ranks = fatal[0], tellers(scene)
    number = first.xid or 0
    meaning = switch_catalogued(number).meaning
    switch = one_line(first.device, 40) or "an NVSwitch"
    text = f"The NVLink fabric likely failed: {meaning} (SXid {number:05d} of {switch})"
    evidence = (
        *(line for fault in fatal[:4] for line in proof.of_fault(fault, None)),
        *hardware_proof.of_ranks(timeline, ranks),
    )
    return Verdict(
        timeline.attempt,
        "gpu_hardware",
        ranks,
        "likely",
        fault_s(first) or failed_since(scene, ranks),
        sentence(f"{text}; a GPU, the link or the switch may be at fault"),
        "fabric_failed",
        evidence,
        status=status_of(scene, ranks),
        signature=f"SXid {number}",
    )


def program_faulted(timeline: Timeline) -> Verdict | None:
    """Name the rank whose program the GPU stopped, where no rank says so itself.

    Symptom: Xid 13, 31 or 43 (a bad instruction, an illegal address, a device-side
    assertion), and then a rank that aborts or hangs without a word while the others
    lose it. The rank is told by the pid in the line, which owns the channel, or by the
    GPU. It is no fault of the GPU. Window: before the first end, and before any signal
    of dsup's, which leads to such lines itself.
    """
    scene = scene_of(timeline)
    if scene.first or not failed(scene):
        return None
    for incident in incidents(timeline.kernel):
        fault, number = incident.root, incident.number
        ranks = owner(timeline, fault).ranks
        idle = not ranks or unfailed(scene, ranks)
        if number not in _OF_PROGRAMS or idle or not _precedes_all(scene, fault):
            continue
        who = named(timeline, ranks, fault.pci)
        meaning = catalogued(number).meaning
        text = f"The program on {who} likely failed: {meaning} (Xid {number})"
        return Verdict(
            timeline.attempt,
            "cuda_error",
            ranks,
            "likely",
            fault_s(fault) or failed_since(scene, ranks),
            sentence(text),
            "program_faulted",
            (
                *proof.of_fault(fault, ranks[0]),
                *hardware_proof.of_meaning(number),
                *hardware_proof.of_ranks(timeline, ranks),
            ),
            status=status_of(scene, ranks),
            signature=f"Xid {number}",
        )
    return None


def _case(scene: Scene, incident: Incident) -> _Case | None:
    """Return an incident as a possible cause; None where it can not be one."""
    whose = owner(scene.timeline, incident.root)
    case = _Case(incident, whose.ranks)
    if whose.known and not whose.ranks:
        return None
    if not in_time(scene, incident.root, whose.ranks):
        return None
    if _is_of_another(scene.timeline, case) or _is_late(scene, case):
        return None
    if not whose.ranks or _is_mild(case):
        return case if is_open(scene) else None
    return None if unfailed(scene, whose.ranks) else case


def _is_of_another(timeline: Timeline, case: _Case) -> bool:
    """Return whether an Xid that ends one process only names one of somebody else's."""
    pid = case.incident.root.pid
    lone = catalogued(case.incident.number).dies in _OF_ONE_PROCESS
    known = pid is not None and timeline.host_pids and bool(timeline.kin)
    return lone and known and not case.ranks


def _is_late(scene: Scene, case: _Case) -> bool:
    """Return whether another rank had failed of something of its own before it."""
    at_s = fault_s(case.incident.root)
    if at_s is None:
        return False
    return any(
        a.until_s + KERNEL_CLOCK_S < at_s
        for a in scene.first
        if a.rank not in case.ranks
    )


def _is_mild(case: _Case) -> bool:
    """Return whether the work on a GPU may have gone on after an incident."""
    text = case.incident.root.text.lower()
    link = catalogued(case.incident.number).klass == "link"
    nonfatal = link and any(word in text for word in _NONFATAL)
    return nonfatal or case.incident.number in _MILD


def _alike(first: _Case, case: _Case) -> bool:
    """Return whether a case belongs to the first: a link fails at both its ends."""
    begun, then = first.incident.root, case.incident.root
    if case is first:
        return True
    classes = {catalogued(c.incident.number).klass for c in (first, case)}
    return classes == {"link"} and together(begun, then)


def _precedes_all(scene: Scene, fault: KernelFault) -> bool:
    """Return whether a line came before any end and any signal of dsup's."""
    at_s = fault_s(fault)
    first_s = min(scene.moments.values(), default=None)
    in_order = at_s is None or first_s is None or at_s <= first_s
    return in_order and in_time(scene, fault, ())


def _text(timeline: Timeline, alike: list[_Case], certainty: Certainty) -> str:
    first = alike[0].incident
    who = " and ".join(
        named(timeline, case.ranks, case.incident.root.pci) for case in alike[:3]
    )
    meaning = catalogued(first.number).meaning
    text = f"{who[:1].upper()}{who[1:]} {hedge(certainty)}failed: {meaning}"
    bus = hardware_proof.bus_errors(timeline, first.root)
    if bus:
        place = one_line(bus[0].pci or bus[0].device, 40)
        text = f"{text} after a fatal PCIe error{f' of {place}' if place else ''}"
    link = catalogued(first.number).klass == "link"
    rest = "; either end of the link may be at fault" if link else ""
    return f"{text} (Xid {first.number}){rest}"


def _of_case(timeline: Timeline, case: _Case) -> tuple[Evidence, ...]:
    ranks, root = case.ranks, case.incident.root
    rank = ranks[0] if len(ranks) == 1 else None
    named_ = case.incident.number != root.xid
    also = [f for f in case.incident.faults if f is not root and f.xid != root.xid]
    return (
        *proof.of_fault(root, rank),
        *(hardware_proof.of_named(case.incident) if named_ else ()),
        *(line for f in also[:2] for line in proof.of_fault(f, rank)),
        *(
            line
            for f in hardware_proof.bus_errors(timeline, root)[:2]
            for line in proof.of_fault(f, None)
        ),
    )
