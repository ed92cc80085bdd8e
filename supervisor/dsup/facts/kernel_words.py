"""Words of the kernel log that all who read it share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

COMM: Final = r"(?:\\x[0-9a-f]{2}|(?!\\x[0-9a-f]{2}).)"
"""A character of a task's name, as a pattern; a byte that is no UTF-8 is four here. A
name has up to 15; what is longer is some program's sentence."""

TELLING: Final = (
    b"oom",
    b"emory",
    b"charge",
    b"__alloc_",
    b"Kill",
    b"killed",
    b"usage ",
    b"Mem-Info",
    b"fault",
    b"trap",
    b"unhandled",
    b"protection",
    b"opcode",
    b"PID: ",
    b"Pid: ",
    b"pids controller",
    b"NVRM",
    b"SXid",
    b"achine ",
    b"MCE",
    b"EDAC",
    b"CMCI",
    b"PCIe",
    b"AER",
    b"aer_",
    b"DPC",
    b"pciehp",
    b"blocked ",
    b"ockup",
    b"LOCKUP",
    b"stall",
    b"inactive",
    b"rror",
    b"timeout",
    b"timed out",
    b"fail",
    b"FAILED",
    b"hutting",
    b"hutdown",
    b"read-only",
    b"readonly",
    b"orrupt",
    b" down",
    b"Down",
    b"DOWN",
    b"not re",
    b"bort",
    b"ffline",
    b"Sense",
    b"COMRESET",
    b"LBA",
    b"evicted",
    b"Timed out",
    b" Hang",
    b"not present",
    b" lost",
    b"caps stale",
    b"hung",
    b"health",
    b"cqe",
    b"insufficient",
    b"assert_",
    b"Emask",
    b"unplugged",
    b"emperature",
    b"type=1701",
)
"""A record without one of these words tells of no fault."""


def telling() -> Callable[[bytes], object]:
    """Return a function that looks for such a word: at once, so it takes less time."""
    import re  # compiled when the first record is read, not when the agent starts

    return re.compile(b"|".join(map(re.escape, TELLING))).search
