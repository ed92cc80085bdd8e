"""One log file of a rank and its time index, read from anywhere in it, in any size."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Final

from dsup.cli.safe_files import Opened
from dsup_runtime.contract import INDEX_RECORD, INDEX_SUFFIX

BLOCK_BYTES: Final = 64 * 1024

_RECORDS: Final = 256
_NEVER: Final = 1 << 63


class Index:
    """Says when which byte of a log was read; of one that is missing, nothing.

    Args:
        fd: of the index; -1 for none.

    Attributes:
        at_ns: when what is at the offset was read, CLOCK_REALTIME; 0 if unknown.
        until: where what was read later begins; beyond every file if that is unknown.
    """

    def __init__(self, fd: int) -> None:
        self.at_ns = 0
        self.until = _NEVER
        self._fd = fd
        self._next = 0
        self._next_ns = 0
        self._block: list[tuple[int, int]] = []
        self._block_at = 0

    def since(self, at_ns: int) -> int | None:
        """Return where what was read at some time or later begins; None for nowhere."""
        record = self._record(self._first(lambda when, _: when >= at_ns))
        return record[1] if record else None

    def seek(self, offset: int) -> None:
        """Stand at an offset."""
        later = self._first(lambda _, where: where > offset)
        self._next = max(0, later - 1)
        self.at_ns = self._next_ns = self.until = 0
        self.advance(offset)

    def advance(self, offset: int) -> None:
        """Go on to an offset that is not before the one before."""
        if self.until == _NEVER:
            self._read()
        while self.until <= offset:
            self.at_ns = self._next_ns or self.at_ns
            self._read()

    def _read(self) -> None:
        record = self._record(self._next)
        if record is None:
            self._next_ns, self.until = 0, _NEVER
            return
        self._next += 1
        self._next_ns, self.until = record

    def _record(self, number: int) -> tuple[int, int] | None:
        if not 0 <= number - self._block_at < len(self._block):
            size = INDEX_RECORD.size
            raw = b""
            if self._fd >= 0:
                raw = os.pread(self._fd, size * _RECORDS, number * size)
            self._block = list(INDEX_RECORD.iter_unpack(raw[: len(raw) // size * size]))
            self._block_at = number
        at = number - self._block_at
        return self._block[at] if at < len(self._block) else None

    def _first(self, fits: Callable[[int, int], bool]) -> int:
        """Return the number of the first record of which something is true."""
        size = os.fstat(self._fd).st_size if self._fd >= 0 else 0
        low, high = 0, size // INDEX_RECORD.size
        while low < high:
            middle = (low + high) // 2
            record = self._record(middle)
            if record is None or fits(*record):
                high = middle
            else:
                low = middle + 1
        return low


class Part:
    """One file of a stream, read from one place on.

    Args:
        top: the run directory.
        name: of the log, below it.

    Raises:
        OSError: it cannot be opened, or is no regular file.

    Attributes:
        offset: what comes next.
        end: where to stop; as far as the file had grown when that was looked at.
        inode: of the file, whatever its name is by now.
    """

    def __init__(self, top: str, name: str) -> None:
        self._stack = ExitStack()
        self._fd = self._stack.enter_context(Opened(top, name))
        found = os.fstat(self._fd)
        self.offset = 0
        self.end = found.st_size
        self.inode = (found.st_dev, found.st_ino)
        fd = -1
        with suppress(OSError):
            fd = self._stack.enter_context(Opened(top, name + INDEX_SUFFIX))
        self._index = Index(fd)
        self._index.seek(0)

    @property
    def at_ns(self) -> int:
        """When what comes next was read, CLOCK_REALTIME; 0 if that is unknown."""
        return self._index.at_ns

    @property
    def left(self) -> int:
        """How many bytes are still to come."""
        return max(0, self.end - self.offset)

    def grow(self) -> None:
        """Look how long the file is by now; one that was cut short begins anew."""
        self.end = os.fstat(self._fd).st_size
        if self.end < self.offset:
            self.seek(0)
        self._index.advance(self.offset)

    def seek(self, offset: int) -> None:
        """Go to a place."""
        self.offset = min(offset, self.end)
        self._index.seek(self.offset)

    def read(self) -> bytes:
        """Return a block of what was read at one time; empty where nothing is left."""
        most = min(BLOCK_BYTES, self.left, max(1, self._index.until - self.offset))
        block = os.pread(self._fd, most, self.offset) if most else b""
        self.offset += len(block)
        if not block:
            self.offset = self.end
        self._index.advance(self.offset)
        return block

    def since(self, at_ns: int) -> int:
        """Return where what was read at some time or later begins."""
        found = self._index.since(at_ns)
        return self.end if found is None else min(max(0, found), self.end)

    def last_lines(self, count: int, start: int) -> tuple[int, int]:
        """Return where the last lines begin, and how many they are.

        Args:
            count: so many at most, at least one.
            start: none that begins before this.
        """
        found, at = 0, self.end
        while at > start:
            begin = max(start, at - BLOCK_BYTES)
            block = os.pread(self._fd, at - begin, begin)
            cut = len(block)
            if at == self.end and block.endswith(b"\n"):
                cut -= 1
            while (cut := block.rfind(b"\n", 0, cut)) >= 0:
                found += 1
                if found == count:
                    return begin + cut + 1, found
            at = begin
        return start, found + (self.end > start)

    def close(self) -> None:
        """Close the descriptors."""
        self._stack.close()
