"""Which Xid of many was the first: one fault of a GPU is told of in many lines. Pure.

Source: Linux logs of public reports, and nverror.h of NVIDIA's open kernel modules: the
root comes first, then Xid 45 for each channel (seconds apart, thousands of lines), 43,
and 154 with what the GPU needs to recover.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from dsup.facts.kernel import KernelFault
from dsup.facts.xids import catalogued

TOGETHER_US: Final = 5_000_000
"""Lines of one GPU that are closer than this are of one incident, microseconds."""

_POISON: Final = 137
_POISONED: Final = 94
_CHANNEL_RESET: Final = 43
MONITORS: Final = (
    "dcgm",
    "dcgm-exporter",
    "nv-hostengine",
    "nvidia-smi",
    "nvidia-persiste",
    "nvtop",
    "nvitop",
    "gpud",
    "NvmlTaskRunner",
    "prometheus",
    "telegraf",
    "cache_mgr_main",
)
"""Programs that only look at GPUs: an Xid may name whoever calls the driver."""


class Incident(NamedTuple):
    """Lines of one GPU that belong together.

    Attributes:
        root: the line that all began with.
        number: Xid number of the beginning; that of ``root``, or one that a line names
            as the one before and whose own line is lost.
        faults: all lines, in the order of the log.
    """

    root: KernelFault
    number: int
    faults: tuple[KernelFault, ...]


def incidents(faults: Iterable[KernelFault]) -> tuple[Incident, ...]:
    """Return the incidents of all GPUs, in the order in which they begin.

    Args:
        faults: of any kind, in the order of the log; only those of kind ``xid`` count.
    """
    groups: list[list[KernelFault]] = []
    latest: dict[str | None, list[KernelFault]] = {}
    for fault in faults:
        if fault.kind != "xid" or fault.xid is None:
            continue
        group = latest.get(fault.pci)
        if group is None or not together(group[-1], fault):
            group = latest[fault.pci] = []
            groups.append(group)
        group.append(fault)
    return tuple(_incident(tuple(group)) for group in groups)


def together(last: KernelFault, fault: KernelFault) -> bool:
    """Return whether two lines are close enough to be of one incident."""
    if last.at_us is None or fault.at_us is None:
        return True
    return abs(fault.at_us - last.at_us) <= TOGETHER_US


def is_monitor(comm: str | None) -> bool:
    """Return whether a name is that of a program that only looks at GPUs."""
    return comm is not None and comm.startswith(MONITORS)


def _incident(faults: tuple[KernelFault, ...]) -> Incident:
    numbers = {fault.xid for fault in faults}
    named = next((f for f in faults if f.previous_xid is not None), None)
    begun = [f for f in faults if _begins(f, numbers)]
    if not begun and named is not None and named.previous_xid is not None:
        return Incident(named, named.previous_xid, faults)
    root = (begun or _less(faults))[0]
    return Incident(root, root.xid or 0, faults)


def _begins(fault: KernelFault, numbers: set[int | None]) -> bool:
    """Return whether a line may be the beginning, not what follows from it."""
    sympathetic = fault.xid == _POISONED and _POISON in numbers
    reset = fault.xid == _CHANNEL_RESET
    noted = catalogued(fault.xid or 0).klass == "bookkeeping"
    return not (sympathetic or reset or noted)


def _less(faults: tuple[KernelFault, ...]) -> list[KernelFault]:
    """Return what is left to begin with: a channel reset goes before mere clean-up."""
    resets = [f for f in faults if f.xid == _CHANNEL_RESET]
    return resets or list(faults)
