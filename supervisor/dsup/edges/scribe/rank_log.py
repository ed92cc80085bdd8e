"""A stream in the run directory: its log, the log's time index, and what is filtered.

The index is ``stdout.log.index``: records of two little-endian 8-byte integers, the
wall time (CLOCK_REALTIME, nanoseconds) and the offset in the log of what was read at
that time; at most ten records a second. A log that has grown past its limit becomes
``stdout.log.1``, its index ``stdout.log.1.index``, and the one before is dropped.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from dsup.edges.scribe import text
from dsup.edges.scribe.files import open_append
from dsup_runtime.contract import INDEX_RECORD, INDEX_SUFFIX, ROTATED_SUFFIX

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dsup.edges.scribe.files import Disk, LogFile

INDEX_EVERY_NS = 100_000_000


class Index:
    """Says when which byte of a log was read; a disk in trouble costs entries only."""

    def __init__(self, log_path: str, mode: int, wall_ns: Callable[[], int]) -> None:
        self._path = log_path + INDEX_SUFFIX
        self._rotated = log_path + ROTATED_SUFFIX + INDEX_SUFFIX
        self._mode = mode
        self._wall_ns = wall_ns
        self._last_ns = 0
        self._fd = -1

    def note(self, offset: int) -> None:
        """Note that what is at this offset has been read now."""
        now_ns = self._wall_ns()
        # Wall time may jump back; then the next entry must not wait for it to return.
        if 0 <= now_ns - self._last_ns < INDEX_EVERY_NS:
            return
        self._last_ns = now_ns
        try:
            if self._fd < 0:
                self._open()
            os.write(self._fd, INDEX_RECORD.pack(now_ns, offset))
        except OSError:
            self.close()

    def rotate(self) -> None:
        """Follow the log."""
        self.close()
        self._last_ns = 0
        try:
            os.rename(self._path, self._rotated)
        except OSError:
            return

    def close(self) -> None:
        """Close the descriptor."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)

    def _open(self) -> None:
        self._fd = open_append(self._path, self._mode)
        size = os.fstat(self._fd).st_size
        os.ftruncate(self._fd, size - size % INDEX_RECORD.size)


class RankLog:
    """The log of one stream: every byte, or every line with its time before it."""

    def __init__(self, disk: Disk, log: LogFile, name: str, index: Index) -> None:
        self._disk = disk
        self._log = log
        self._name = name
        self._index = index
        self._stamp: Callable[[], bytes] | None = None
        self._begins = True
        self._max_bytes = 0
        self._limit = 0
        disk.append(log, name, b"")

    def stamped(self, stamp: Callable[[], bytes]) -> None:
        """Put the time before each line from now on."""
        self._stamp = stamp

    def limited(self, max_bytes: int) -> None:
        """Begin anew when the file would grow past this."""
        self._max_bytes = self._limit = max_bytes

    def append(self, chunk: bytes) -> None:
        """Write what was read, or keep it until the disk takes it."""
        if self._stamp:
            begins, self._begins = self._begins, chunk.endswith(b"\n")
            chunk = text.lead(chunk, self._stamp(), begins=begins)
        if self._limit and self._log.size + len(chunk) > self._limit:
            chunk = self._begin_anew(chunk)
        self._write(chunk)

    def close(self) -> None:
        """Close the descriptors."""
        self._log.close()
        self._index.close()

    def _write(self, chunk: bytes) -> None:
        if not self._log.error:
            self._index.note(self._log.size)
        self._disk.append(self._log, self._name, chunk)

    def _begin_anew(self, chunk: bytes) -> bytes:
        """Fill the file up with whole lines, and return what goes into the next."""
        room = max(0, self._limit - self._log.size)
        cut = chunk.rfind(b"\n", 0, room) + 1
        if cut:
            self._write(chunk[:cut])
        if self._log.rotate():
            self._index.rotate()
            self._limit = self._max_bytes
        else:  # in the way of a directory or of a disk: not again for every chunk
            self._limit = self._log.size + self._max_bytes
        return chunk[cut:]


class Filter:
    """Copies lines that contain one of some texts to a log that ranks share."""

    def __init__(self, disk: Disk, log: LogFile, name: str) -> None:
        self._disk = disk
        self._log = log
        self._name = name
        self._needles: Sequence[bytes] = ()
        self._prefix = b""

    def of(self, needles: Sequence[str], prefix: str) -> Filter:
        """Return a filter of one rank that writes to the same log."""
        one = Filter(self._disk, self._log, self._name)
        one._needles = [needle.encode() for needle in needles]
        one._prefix = prefix.encode()
        return one

    def lines(self, block: bytes) -> None:
        """Copy the lines that match; a piece of a line is taken for one."""
        if not self._matches(block):
            return
        lines = block.removesuffix(b"\n").split(b"\n")
        found = [self._prefix + line + b"\n" for line in lines if self._matches(line)]
        self._disk.append(self._log, self._name, b"".join(found))

    def close(self) -> None:
        """Close the descriptor; a straggler opens it again."""
        self._log.close()

    def _matches(self, block: bytes) -> bool:
        return any(needle in block for needle in self._needles)
