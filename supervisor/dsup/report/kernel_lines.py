"""Kernel faults as lines for people. Pure.

A fault is one line: when, of which kind, and the kernel's own words. What a kind or an
Xid means stands below the first of each, since a log repeats itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from dsup.core.printable import printable
from dsup.facts.kernel import KernelFault, Kind
from dsup.facts.kernel_wall import wall_iso
from dsup.report.columns import Columns

_BAD: Final = "\x1b[1;31m"
_MILD: Final = "\x1b[33m"
_FAINT: Final = "\x1b[2m"
_OFF: Final = "\x1b[0m"
_KIND_WIDTH: Final = 10
_TIME_MAX: Final = 32
_TEXT_MIN: Final = 40
"""So much of a text is shown, however narrow the terminal is."""

MEANINGS: Final[dict[Kind, str]] = {
    "oom_global": "the machine had no memory left, and the kernel killed a process",
    "oom_memcg": "a cgroup reached its memory limit, and the kernel killed a process",
    "segfault": "a process accessed memory it must not, and was killed (SIGSEGV)",
    "gpf": "a process used an address that no memory can have, and was killed",
    "trap": "a process ran an instruction that it could not, and was killed",
    "xid": "the NVIDIA driver reported an error of a GPU or of its user",
    "sxid": "the NVIDIA driver reported an error of an NVSwitch",
    "mce": "the processor reported an error of the hardware",
    "ecc_mem": "main memory had bad bits; corrected ones cost nothing but time",
    "aer": "a PCIe link reported an error; corrected ones cost nothing but time",
    "hung_task": "a process slept in the kernel and did not wake: storage or a driver",
    "lockup": "a processor was stuck in the kernel",
    "io_error": "a disk, or what it is connected by, did not do what it was asked for",
    "ib_link": "an InfiniBand port went down or up",
    "pids_limit": "a cgroup reached its limit of processes: no new one could start",
}


def fault_lines(
    faults: Sequence[KernelFault], *, colour: bool, columns: int | None = None
) -> Iterator[str]:
    """Yield the lines of faults.

    Args:
        faults: what was found.
        colour: colours are shown.
        columns: a fault's line is cut so that it is no wider; None to keep it whole.
    """
    since_boot = any(fault.at_us is not None for fault in faults) and not all(
        fault.stamp for fault in faults
    )
    times = [_time(fault, since_boot=since_boot) for fault in faults]
    room = max(map(len, times), default=0)
    told: set[tuple[Kind, int | None]] = set()
    for fault, when in zip(faults, times, strict=True):
        tone = _MILD if fault.severity == "corrected" else _BAD
        kind = _toned(_kind(fault).ljust(_KIND_WIDTH), tone, colour)
        said = " ".join([_words(fault), *_besides(fault)])
        left = room + 4 + max(_KIND_WIDTH, len(_kind(fault)))
        yield f"{when:>{room}}  {kind}  {_cut(said, columns, left)}"
        mark = (fault.kind, fault.xid)
        if mark not in told:
            told.add(mark)
            for line in _explained(fault):
                yield _toned(f"{'':{room + 2}}{line}", _FAINT, colour)


def _kind(fault: KernelFault) -> str:
    if fault.kind in {"xid", "sxid"} and fault.xid is not None:
        return f"{'Xid' if fault.kind == 'xid' else 'SXid'} {fault.xid}"
    return fault.kind


def _cut(text: str, columns: int | None, left: int) -> str:
    """Return what of a text fits beside ``left`` columns."""
    if columns is None:
        return text
    return "".join(Columns().fit(text, max(_TEXT_MIN, columns - left), 1))


def _time(fault: KernelFault, *, since_boot: bool) -> str:
    """Return when it was: by the wall where the whole log tells that, else as shown."""
    if fault.at_us is not None and since_boot:
        return f"[{fault.at_us // 1_000_000}.{fault.at_us % 1_000_000:06}]"
    wall = wall_iso(fault.stamp)
    return (wall or printable(fault.stamp))[:_TIME_MAX].replace(
        "T", " ", bool(wall)
    ) or "-"


def _words(fault: KernelFault) -> str:
    return fault.text or MEANINGS[fault.kind]


def _besides(fault: KernelFault) -> Iterator[str]:
    """Yield what other lines of the fault say and its first one does not."""
    known = [
        ("", fault.comm or ""),
        ("pid ", "" if fault.pid is None else str(fault.pid)),
        ("", fault.pci or ""),
        ("", fault.device),
        ("in ", fault.lib or ""),
        ("", fault.severity),
    ]
    told = [
        f"{label}{printable(value)}"
        for label, value in known
        if value and printable(value) not in fault.text
    ]
    if told:
        yield f"({', '.join(told)})"


def _explained(fault: KernelFault) -> Iterator[str]:
    """Yield what a kind or an Xid means, and what to do about an Xid."""
    if fault.kind != "xid" or fault.xid is None:
        yield f"means: {MEANINGS[fault.kind]}"
        return
    from dsup.facts.xids import XIDS

    known = XIDS.get(fault.xid)
    if known is None:
        yield "means: not in the catalogue that dsup has"
        return
    yield f"means: {known.meaning}"
    yield f"to do: {known.advice}"


def _toned(text: str, tone: str, colour: bool) -> str:
    return f"{tone}{text}{_OFF}" if colour else text
