"""A kernel fault as lines for people. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from dsup.core.printable import printable
from dsup.facts.kernel import KernelFault

_BAD: Final = "\x1b[1;31m"
_MILD: Final = "\x1b[33m"
_FAINT: Final = "\x1b[2m"
_OFF: Final = "\x1b[0m"
_KIND_WIDTH: Final = 10
_TIME_WIDTH: Final = 15


def fault_lines(fault: KernelFault, *, colour: bool, explain: bool) -> Iterator[str]:
    """Return a fault's line, and below it what its Xid means and what to do.

    Args:
        fault: what was found.
        colour: colours are shown.
        explain: meaning and advice are wanted.
    """
    tone = _MILD if fault.severity == "corrected" else _BAD
    kind = _toned(fault.kind.ljust(_KIND_WIDTH), tone, colour)
    about = " ".join(_about(fault))
    words = [_time(fault).rjust(_TIME_WIDTH), kind, *([about] if about else [])]
    yield f"{'  '.join(words)}  {_toned(fault.text, _FAINT, colour)}"
    for line in _explained(fault) if explain else ():
        yield f"{' ' * (_TIME_WIDTH + 2)}{line}"


def _time(fault: KernelFault) -> str:
    if fault.at_us is not None:
        return f"[{fault.at_us // 1_000_000}.{fault.at_us % 1_000_000:06}]"
    return printable(fault.stamp) or "-"


def _about(fault: KernelFault) -> Iterator[str]:
    """Return what the fault is about, in the words of the log."""
    if fault.xid is not None:
        yield str(fault.xid)
    if fault.pid is not None or fault.comm:
        name = printable(fault.comm) if fault.comm else ""
        yield f"{name}[{fault.pid}]" if fault.pid is not None else name
    if fault.pci:
        yield fault.pci
    if fault.device:
        yield printable(fault.device)
    if fault.lib:
        yield f"in {printable(fault.lib)}"
    if fault.severity:
        yield fault.severity


def _explained(fault: KernelFault) -> Iterator[str]:
    """Return what the catalogue says of an Xid; nothing of a number it lacks."""
    if fault.kind != "xid" or fault.xid is None:
        return
    from dsup.facts.xids import XIDS

    known = XIDS.get(fault.xid)
    if known is not None:
        yield f"meaning: {known.meaning}"
        yield f"advice: {known.advice}"


def _toned(text: str, tone: str, colour: bool) -> str:
    return f"{tone}{text}{_OFF}" if colour else text
