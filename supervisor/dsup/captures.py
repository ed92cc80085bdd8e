"""What captures of an attempt have found, kept in a memory file of its own.

Aides write into it; its texts go to the run directory, its records to the judge.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from dsup.edges.capture import Found

_RECORDS_MAX: Final = 32 * 1024 * 1024


class Desk(Protocol):
    """What this needs of the publisher."""

    def keep_stacks(self, attempt: int, rank: int, text: bytes) -> None:
        """Write a rank's stacks into the run directory."""


class Captures:
    """All captures of one attempt.

    Args:
        attempt: its number.

    Attributes:
        fd: the memory file; -1 before it is opened, and after ``close``.
        end: from which byte on it is free.
        stacks: records of the last two captures, for the judge.
        traces: of flight recorders, the same.
    """

    def __init__(self, attempt: int) -> None:
        self.fd = -1
        self.end = 0
        self.stacks = self.traces = b""
        self._attempt = attempt
        self._earlier = (b"", b"")
        self._segments: dict[int, list[tuple[int, int]]] = {}

    def open(self) -> None:
        """Make the memory file, if there is none yet.

        Raises:
            OSError: it cannot be made.
        """
        if self.fd < 0:
            self.fd = os.memfd_create("dsup-captures", os.MFD_CLOEXEC)

    def keep(self, found: Found, desk: Desk) -> None:
        """Keep the records for the judge and write the texts, all of the attempt's."""
        if found.facts[1]:
            stacks, traces = self._records(found.facts), self._records(found.traces)
            self.stacks = self._earlier[0] + stacks
            self.traces = self._earlier[1] + traces
            self._earlier = stacks, traces
        for rank, at, size in found.texts:
            self._segments.setdefault(rank, []).append((at, size))
            parts = (os.pread(self.fd, n, where) for where, n in self._segments[rank])
            desk.keep_stacks(self._attempt, rank, b"".join(parts))
        self.end = os.fstat(self.fd).st_size if self.fd >= 0 else 0

    def close(self) -> None:
        """Let the file go; what it has shown stays."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def _records(self, where: tuple[int, int]) -> bytes:
        start, length = where
        return os.pread(self.fd, min(length, _RECORDS_MAX), start) if length else b""
