"""One rank's stdout or stderr, on its way to log, console, filter and memory."""

from __future__ import annotations

import os
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from dsup.edges.scribe import text

if TYPE_CHECKING:
    from dsup.edges.scribe.rank_log import Filter, RankLog
    from dsup.edges.scribe.tails import Tail
    from dsup.edges.scribe.view import View

READ_BYTES = 64 * 1024
"""Below what malloc maps anew for each block, which costs as much as the reading."""
READS_A_TURN = 4
PIPE_READS = 17
"""Reads that take all a full pipe can hold (1 MiB where nobody raised the limit)."""
PARTIAL_BYTES = 64 * 1024


class Outlets(NamedTuple):
    """Where a stream goes; None for not there."""

    tail: Tail
    log: RankLog | None
    view: View | None
    chosen: Filter | None


class Stream:
    """The read end of a pipe and where its bytes go.

    Attributes:
        fd: the read end, non-blocking; -1 once it is closed.
        attempt: the attempt it belongs to.
    """

    def __init__(self, fd: int, attempt: int, outlets: Outlets) -> None:
        self.fd = fd
        self.attempt = attempt
        self._outlets = outlets
        self._in_lines = outlets.view or outlets.chosen
        self._partial = b""

    @property
    def due_s(self) -> float:
        """Return when ``tick`` is due; the scribe's clock, seconds; inf for never."""
        return self._outlets.view.due_s if self._outlets.view else inf

    def tick(self) -> None:
        """Show what has been unfinished for long enough."""
        if self._outlets.view:
            self._outlets.view.tick()

    def read(self) -> int:
        """Take what one read gives.

        Returns:
            The bytes read, 0 at the end of the stream, -1 when there is nothing now.
        """
        try:
            chunk = os.read(self.fd, READ_BYTES)
        except BlockingIOError:
            return -1
        except OSError:  # EIO: the other side of a terminal has gone
            return 0
        if chunk:
            self._take(chunk)
        return len(chunk)

    def turn(self) -> bool:
        """Take a bounded amount of what has come; return whether that was the end."""
        for _ in range(READS_A_TURN):
            count = self.read()
            if count < READ_BYTES:
                return count == 0
        return False

    def drain(self) -> bool:
        """Take what the pipe holds now; return whether that was its end."""
        for _ in range(PIPE_READS):
            count = self.read()
            if count <= 0:
                return count == 0
        return False

    def close(self) -> None:
        """Give up the read end; an unfinished last line is shown as it is."""
        os.close(self.fd)
        self.fd = -1
        if self._outlets.view:
            self._outlets.view.end()
        if self._outlets.chosen and self._partial:
            self._outlets.chosen.lines(self._partial)
        self._partial = b""
        if self._outlets.log:
            self._outlets.log.close()

    def _take(self, chunk: bytes) -> None:
        self._outlets.tail.add(chunk)
        if self._outlets.log:
            self._outlets.log.append(chunk)
        if not self._in_lines:
            return
        end = chunk.rfind(b"\n") + 1
        if end:
            lines = chunk if end == len(chunk) and not self._partial else chunk[:end]
            self._pass_on(self._partial + lines if self._partial else lines)
            self._partial = chunk[end:]
        else:
            self._partial += chunk
        if self._partial:
            self._hold()

    def _hold(self) -> None:
        """Keep an unfinished line, as far as it fits into memory."""
        if b"\r" in self._partial:
            self._partial = text.last_state(self._partial)
        if len(self._partial) >= PARTIAL_BYTES:
            end = text.whole_characters(self._partial)
            self._pass_on(self._partial[:end])
            self._partial = self._partial[end:]
        if self._outlets.view:
            self._outlets.view.rest(self._partial)

    def _pass_on(self, block: bytes) -> None:
        if self._outlets.view:
            self._outlets.view.lines(block)
        if self._outlets.chosen:
            self._outlets.chosen.lines(block)
