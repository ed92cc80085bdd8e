"""Records of the audit system: who died of a signal that dumps core."""

from __future__ import annotations

from typing import NamedTuple


class Abend(NamedTuple):
    """A death that audit record 1701 (ANOM_ABEND) tells of.

    Attributes:
        pid: of the process (not the thread), in the initial pid namespace.
        comm: its name, decoded.
        exe: the program; empty if unknown.
        signum: what it died of.
        at_us: when the kernel log printed it, microseconds since boot; None if unknown.
        text: the record, printable.
    """

    pid: int
    comm: str
    exe: str
    signum: int
    at_us: int | None = None
    text: str = ""
