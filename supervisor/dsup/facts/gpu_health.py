"""How a GPU is after a death, by what NVML said before and after it: pure.

Three answers. ``bad`` is only what NVML calls by a name: a GPU that is lost or wants a
reset, an uncorrectable memory error, a row that could not be remapped, a recovery
action, an Xid of the hardware. It must be new, for what was so when the attempt began
did not end it; but nothing runs on a GPU that is lost or wants a reset, since whenever.
No answer, a refusal, or a thing that this GPU does not have is ``unknown``, never a
finding.

Source: https://docs.nvidia.com/deploy/nvml-api/, its error codes and events, and
https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from dsup.facts import nvml
from dsup.facts.hardware import Card, Gpu, GpuHealth, Problem
from dsup.facts.nvml import Event, Probed, Reading
from dsup.facts.xids import is_device

DOUBLE_BIT: Final = 0x2
XID: Final = 0x8
RETIREMENT_FAILED: Final = 0x800
FATAL_POISON: Final = 0x2000
UNAVAILABLE: Final = 0x4000
"""Types of events."""

RECOVERY: Final[Mapping[int, str]] = {
    1: "a reset",
    2: "a reboot of the node",
    3: "its peer-to-peer traffic drained",
    4: "to be drained and reset",
    5: "the IMEX domain to be recovered",
    6: "a reset of its bus",
    7: "a reboot of the system",
}
"""What NVML says that a GPU wants (field 230); 0 is nothing."""

_BY_SEVERITY: Final = range(144, 151)
"""Xids of NVLink 5, of which the severity in the kernel's line decides; an event has a
number and no text."""

_SLOW_S: Final = 1.0
_NS: Final = 1e9
_SLOWED: Final[Mapping[str, str]] = {
    "slow_thermal_ns": "heat",
    "slow_board_ns": "the board's power limit",
    "slow_reliability_ns": "a limit for reliability",
}
THROTTLED: Final[Mapping[int, str]] = {
    0x08: "hardware slowdown",
    0x20: "heat (software)",
    0x40: "heat (hardware)",
    0x80: "power brake",
}
_LINK_COUNTERS: Final[Mapping[str, str]] = {
    "replay": "replays",
    "recovery": "recoveries",
    "crc": "checksum errors",
    "receive": "receive errors",
    "integrity": "integrity errors",
    "failed_recovery": "failed recoveries",
}
_BUS_COUNTERS: Final[Mapping[str, str]] = {
    "pcie_replays": "PCIe replays",
    "pcie_nonfatal": "non-fatal PCIe errors",
    "pcie_fatal": "fatal PCIe errors",
}
_LINKS_TOLD: Final = 6


class _Found(NamedTuple):
    problem: Problem
    text: str


class _Case(NamedTuple):
    """One GPU: how it was, how it is, and what happened between."""

    gpu: Gpu
    before: Reading
    after: Reading
    events: tuple[Event, ...]

    def risen(self, name: str) -> int:
        """Return by how much a counter rose; 0 if it did not, or nobody knows.

        One that fell was set to zero in between, as a reset does: it counts from there.
        """
        now, then = self.after.values.get(name), self.before.values.get(name)
        if now is None or then is None:
            return 0
        return now - then if now >= then else now


def health_of_all(cards: Sequence[Card], probed: Probed) -> tuple[GpuHealth, ...]:
    """Return how each GPU is; empty where NVML was not asked, or cannot be.

    Args:
        cards: from ``decode_cards``.
        probed: what the probe said.
    """
    if not probed.asked or probed.failed:
        return ()
    before = nvml.decode_readings(probed.before)
    after = nvml.decode_readings(probed.after)
    events = nvml.decode_events(probed.events)
    return tuple(
        health(
            card.gpu,
            before.get(card.gpu.number, Reading()),
            after.get(card.gpu.number),
            tuple(event for event in events if event.number == card.gpu.number),
        )
        for card in cards
    )


def health(
    gpu: Gpu, before: Reading, after: Reading | None, events: tuple[Event, ...] = ()
) -> GpuHealth:
    """Return how a GPU is.

    Args:
        gpu: which one.
        before: after the ranks had started; empty if it could not be read.
        after: after the first death; None if it gave no answer.
        events: its events since the attempt began.
    """
    case = _Case(gpu, before, after or Reading(), events)
    found = next(_problems(case), None)
    numbers = tuple(event.data for event in events if event.type == XID)
    moments = [e.at_s for e in events if e.at_s is not None]
    at_s = min(moments) if moments else case.after.at_s
    notes = tuple(_notes(case))
    if found:
        text = f"{_name(gpu)} {found.text}"
        return GpuHealth(gpu, "bad", found.problem, text, numbers, notes, at_s)
    if after is None:
        text = f"{_name(gpu)} gave no answer"
    elif nvml.UNKNOWN in after.errors.values():
        text = (
            f"{_name(gpu)} answers with unknown error (999): it may be lost, or its "
            "device node was taken away"
        )
    elif any(_old(case)):
        text = f"{_name(gpu)} was not well before the attempt began"
    elif after.values.keys() - {"on_bus"}:
        text = f"NVML finds nothing wrong with {_name(gpu)}"
        return GpuHealth(gpu, "ok", "", text, numbers, notes, at_s)
    else:
        text = f"{_name(gpu)} does not tell how it is"
    return GpuHealth(gpu, "unknown", "", text, numbers, notes, at_s)


def _name(gpu: Gpu) -> str:
    return f"GPU {gpu.number} ({gpu.pci})" if gpu.pci else f"GPU {gpu.number}"


def _problems(case: _Case) -> Iterator[_Found]:
    """Yield what is bad, the gravest first."""
    yield from _refusals(case)
    yield from _memory(case)
    yield from _recovery(case)
    for event in case.events:
        if event.type == XID and _is_of_hardware(event.data):
            yield _Found("xid", f"had Xid {event.data}, which is of the hardware")


def _is_of_hardware(xid: int) -> bool:
    return is_device(xid) and xid not in _BY_SEVERITY


def _refusals(case: _Case) -> Iterator[_Found]:
    codes = set(case.after.errors.values())
    types = {event.type for event in case.events}
    if nvml.LOST in codes:
        yield _Found("lost", "is lost (NVML error 15)")
    if UNAVAILABLE in types:
        yield _Found("lost", "became unavailable (NVML event)")
    on_bus = [reading.values.get("on_bus") for reading in (case.before, case.after)]
    if on_bus == [1, 0]:
        yield _Found("lost", "has left the PCI bus")
    if nvml.RESET_REQUIRED in codes:
        yield _Found("reset_required", "wants a reset (NVML error 16)")


def _memory(case: _Case) -> Iterator[_Found]:
    types = {event.type for event in case.events}
    volatile, ever = case.risen("ecc_volatile"), case.risen("ecc_aggregate")
    count = max(volatile, ever)
    if count:
        errors = "error" if count == 1 else "errors"
        yield _Found("ecc", f"had {count} uncorrectable memory {errors} (ECC)")
    if types & {DOUBLE_BIT, FATAL_POISON}:
        yield _Found("ecc", "had an uncorrectable memory error (NVML event)")
    if case.risen("remap_failure") or RETIREMENT_FAILED in types:
        yield _Found("row_remap", "could not remap a bad row of its memory")
    if case.risen("remapped"):
        yield _Found("ecc", "remapped a row after an uncorrectable memory error")
    if case.risen("retired"):
        yield _Found("ecc", "retired a page after a double-bit memory error")


def _recovery(case: _Case) -> Iterator[_Found]:
    action = case.after.values.get("recovery", 0)
    if action > 0 and action != case.before.values.get("recovery"):
        wants = RECOVERY.get(action, f"recovery action {action}")
        yield _Found("recovery_action", f"wants {wants} (NVML's recovery action)")


def _notes(case: _Case) -> Iterator[str]:
    """Yield what is no verdict but worth reading."""
    yield from _old(case)
    after, before = case.after.values, case.before.values
    if case.risen("remap_pending") or case.risen("retire_pending"):
        yield "a bad part of its memory is set aside at the next reset"
    if after.get("ecc_volatile", 0) < before.get("ecc_volatile", 0):
        yield "its error counters started again: it was reset meanwhile"
    yield from _bus(case)
    yield from _links(case)
    for name, why in _SLOWED.items():
        slow_s = case.risen(name) / _NS
        if slow_s >= _SLOW_S:
            yield f"slowed down for {slow_s:.0f} s by {why}"
    reasons = after.get("throttle", 0)
    for bit, why in THROTTLED.items():
        if reasons & bit:
            yield f"is slowed down now: {why}"


def _old(case: _Case) -> Iterator[str]:
    """Yield what is bad and was so before the attempt."""
    after, before = case.after.values, case.before.values
    if after.get("remap_failure") and before.get("remap_failure"):
        yield "could not remap a bad row before the attempt began: replace it"
    action = after.get("recovery", 0)
    if action > 0 and action == before.get("recovery"):
        wants = RECOVERY.get(action, f"recovery action {action}")
        yield f"wanted {wants} before the attempt began"


def _bus(case: _Case) -> Iterator[str]:
    width, most = (case.after.values.get(f"pcie_width{m}") for m in ("", "_max"))
    if width is not None and most is not None and 0 < width < most:
        yield f"its PCIe link has {width} of {most} lanes"
    for name, what in _BUS_COUNTERS.items():
        rise = case.risen(name)
        if rise:
            yield f"{what}: {rise} more"


def _links(case: _Case) -> Iterator[str]:
    """Yield NVLinks that went down or whose error counters rose, at most a few."""
    told = 0
    for name, up in case.before.values.items():
        link = name.removeprefix("link").removesuffix("_up")
        if not link.isdecimal() or name != f"link{link}_up":
            continue
        parts = []
        if up and case.after.values.get(name) == 0:
            parts.append("went down")
        for counter, what in _LINK_COUNTERS.items():
            rise = case.risen(f"link{link}_{counter}")
            parts += [f"{rise} more {what}"] if rise else []
        if parts and told < _LINKS_TOLD:
            told += 1
            yield f"NVLink {link}: {', '.join(parts)}"
