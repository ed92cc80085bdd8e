"""What captures of an attempt have found, kept in a memory file of its own.

Aides write into it; its texts go to the run directory, its records to the judge. Kept
are the first capture and the last two: the file has a place for each, and however long
a hang is only looked at, neither it nor what is written of it grows.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from dsup.facts.captured import Found

_PLACES: Final = 3


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
        end: from which byte on the next capture may be written.
        stacks: records of the last two captures, for the judge.
        traces: of flight recorders, the same.
    """

    def __init__(self, attempt: int) -> None:
        self.fd = -1
        self.end = 0
        self.stacks = self.traces = b""
        self._attempt = attempt
        self._earlier = (b"", b"")
        self._kept: list[Found] = []
        self._count = 0

    def open(self) -> None:
        """Make the memory file, if there is none yet.

        Raises:
            OSError: it cannot be made.
        """
        if self.fd < 0:
            self.fd = os.memfd_create("dsup-captures", os.MFD_CLOEXEC)

    def keep(self, found: Found, desk: Desk) -> None:
        """Keep the records for the judge and write the texts of what is kept."""
        from dsup.facts.captured import CAPTURE_MAX_BYTES

        if found.facts[1]:
            stacks, traces = self._read(*found.facts), self._read(*found.traces)
            self.stacks = self._earlier[0] + stacks
            self.traces = self._earlier[1] + traces
            self._earlier = stacks, traces
        if not found.texts:
            return  # it has found nothing: the next one takes its place
        self._kept = [*self._kept[:1], *self._kept[1:][-1:], found]
        for rank in {rank for rank, _, _ in found.texts}:
            desk.keep_stacks(self._attempt, rank, self._texts(rank))
        self._count += 1
        self.end = place_of(self._count) * CAPTURE_MAX_BYTES

    def close(self) -> None:
        """Let the file go; what it has shown stays."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def _texts(self, rank: int) -> bytes:
        """Return what the captures that are kept say of a rank, the oldest first."""
        places = [place for one in self._kept for place in one.texts]
        return b"".join(self._read(at, n) for who, at, n in places if who == rank)

    def _read(self, at: int, length: int) -> bytes:
        return os.pread(self.fd, length, at) if length else b""


def place_of(number: int) -> int:
    """Return where a capture goes by its number: the first stays, two take turns."""
    return number if number < _PLACES else 1 + (number - 1) % (_PLACES - 1)
