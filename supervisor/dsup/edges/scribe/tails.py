"""The last words of each stream, in memory: for whoever asks, files or not."""

from __future__ import annotations

import os

from dsup.edges.scribe.protocol import encode_tail

TAIL_BYTES = 64 * 1024


class Tail:
    """The end of what one stream has written."""

    def __init__(self) -> None:
        self._large = b""
        self._kept = bytearray()

    def add(self, chunk: bytes) -> None:
        """Note what was read."""
        if len(chunk) >= TAIL_BYTES:  # a flood: not to be copied for nothing
            self._large = chunk
            self._kept.clear()
            return
        self._kept += chunk
        if len(self._kept) > 2 * TAIL_BYTES:
            del self._kept[:-TAIL_BYTES]
            self._large = b""

    def last(self) -> bytes:
        """Return the last 64 KiB, or all there is."""
        return (self._large + self._kept)[-TAIL_BYTES:]


class Tails:
    """The tails of one attempt at a time."""

    def __init__(self) -> None:
        self._attempt = -1
        self._tails: dict[tuple[int, int], Tail] = {}

    def open(self, attempt: int, local_rank: int, which: int) -> Tail:
        """Begin a stream's tail; those of an earlier attempt are forgotten."""
        if attempt > self._attempt:
            self._attempt, self._tails = attempt, {}
        tail = Tail()
        if attempt == self._attempt:
            self._tails[local_rank, which] = tail
        return tail

    def write(self, attempt: int, fd: int) -> None:
        """Write an attempt's tails to a memory file, from its beginning.

        Raises:
            OSError: there is no memory.
        """
        os.ftruncate(fd, 0)
        offset = 0
        wanted = self._tails if attempt == self._attempt else {}
        for (local_rank, which), tail in sorted(wanted.items()):
            offset += os.pwrite(fd, encode_tail(local_rank, which, tail.last()), offset)
