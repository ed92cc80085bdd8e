"""A rule about network adapters: whose own port failed, and not its peer's end.

Sources: sysfs counters of InfiniBand ports (upstream drivers often print no line when a
port goes down), Linux drivers/net/ethernet/mellanox/mlx5, NCCL's warnings about its own
adapter, which name a port event and not a peer.
"""

from __future__ import annotations

from typing import Final

from dsup.attribution import hardware_proof, proof
from dsup.attribution.accounts import Account, fault_s, words
from dsup.attribution.devices import Scene, in_time, scene_of
from dsup.attribution.timeline import Timeline
from dsup.attribution.wording import one_line, sentence, subject
from dsup.core.verdict import Certainty, Verdict
from dsup.facts.hardware import PortChange
from dsup.facts.kernel import KernelFault

_LOOKED_AT_CHARS: Final = 8192
_ADAPTER: Final = (
    "got async event : port error",
    "got async event: port error",
    "local catastrophic error",
    "async event : device fatal",
    "device fatal error",
    "port error",
)
"""What a rank says of its own adapter, in lower case."""

_UP: Final = ("link up", " active")


def adapter_failed(timeline: Timeline) -> Verdict | None:
    """Name the ranks whose own network adapter failed, where nothing else explains it.

    Symptom: a port that went down during the attempt (sysfs), a line of its driver, or
    NCCL's word of a port event; all ranks that failed lost each other or say that.
    Those that name the adapter or tell of its event are named, else all of the node
    that failed: its ranks share the ports. Proven where a port's state and a rank's
    word agree. Window: ``in_time`` for lines; a port is compared with the start.
    """
    scene = scene_of(timeline)
    failed = [a for a in scene.known if a.failed]
    ports = [port for port in timeline.ports if port.bad]
    faults = [f for f in timeline.kernel if f.kind == "ib_link" and _is_down(scene, f)]
    tellers = [a for a in failed if _tells(timeline, a)]
    if not failed or not _is_only_network(failed, tellers):
        return None
    if not (ports or faults or tellers):
        return None
    devices = [*(p.device for p in ports), *(f.device for f in faults if f.device)]
    naming = [a for a in failed if _names(timeline, a, devices)]
    chosen = naming or tellers or failed
    ranks = tuple(a.rank for a in chosen)
    seen = bool(ports or faults)
    certainty: Certainty = "proven" if seen and (naming or tellers) else "likely"
    evidence = (
        *(line for port in ports for line in hardware_proof.of_port(port)),
        *(line for fault in faults[:3] for line in proof.of_fault(fault, None)),
        *proof.of_victims(timeline, chosen),
        *(line for a in chosen[:4] for line in proof.of_end(a)),
    )
    what = _what(ports, faults)
    verb = "lost" if certainty == "proven" else "likely lost"
    text = f"{subject(ranks, timeline.world_size)} {verb} the network: {what}"
    moments = [s for fault in faults if (s := fault_s(fault)) is not None]
    return Verdict(
        timeline.attempt,
        "nccl_network",
        ranks,
        certainty,
        min((*moments, *(a.until_s for a in chosen))),
        sentence(text),
        "adapter_failed",
        evidence,
        status=chosen[0].status,
        signature=f"adapter {ports[0].what if ports else ''}".strip(),
    )


def _is_down(scene: Scene, fault: KernelFault) -> bool:
    """Return whether a line tells that an adapter failed, and not that it is back."""
    up = any(word in fault.text.lower() for word in _UP)
    return not up and in_time(scene, fault, ())


def _is_only_network(failed: list[Account], tellers: list[Account]) -> bool:
    told = {a.rank for a in tellers}
    return all(a.sort == "communication" or a.rank in told for a in failed)


def _said(timeline: Timeline, account: Account) -> str:
    """Return what a rank said at its end, capped."""
    told = account.told.text if account.told else ""
    last = words(timeline, account.rank)
    return " ".join((told, *last.lines, last.line))[:_LOOKED_AT_CHARS]


def _tells(timeline: Timeline, account: Account) -> bool:
    if account.sort == "signal":
        return False
    said = _said(timeline, account).lower()
    return any(word in said for word in _ADAPTER)


def _names(timeline: Timeline, account: Account, devices: list[str]) -> bool:
    said = _said(timeline, account)
    return any(device and device in said for device in devices)


def _what(ports: list[PortChange], faults: list[KernelFault]) -> str:
    if ports:
        port = ports[0]
        change = f"{port.what} {port.before} -> {port.after}"
        return one_line(f"port {port.port} of {port.device} failed ({change})", 160)
    if faults:
        return one_line(faults[0].text, 160)
    return "a port event of their own adapter"
