"""One rank's stdout or stderr: exact bytes to its log, whole lines to the console."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dsup.edges.scribe.console import Console
    from dsup.edges.scribe.files import Disk, LogFile

READ_BYTES = 256 * 1024
PIPE_READS = 5
"""Reads that take all a full pipe can hold (1 MiB where nobody raised the limit)."""
PARTIAL_BYTES = 64 * 1024


class Stream:
    """The read end of a pipe and where its bytes go.

    Attributes:
        fd: the read end, non-blocking; -1 once it is closed.
        attempt: the attempt it belongs to.
    """

    def __init__(self, fd: int, attempt: int, console: Console) -> None:
        self.fd = fd
        self.attempt = attempt
        self._console = console
        self._disk: Disk | None = None
        self._log: LogFile | None = None
        self._name = ""
        self._partial = b""

    def log_to(self, disk: Disk, log: LogFile, name: str) -> None:
        """Append all that is read to a file as well."""
        self._disk, self._log, self._name = disk, log, name
        disk.append(log, name, b"")

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
        if self._partial:
            self._console.add(self, self._partial)
            self._partial = b""
        if self._log:
            self._log.close()

    def _take(self, chunk: bytes) -> None:
        if self._disk and self._log:
            self._disk.append(self._log, self._name, chunk)
        end = chunk.rfind(b"\n") + 1
        if end:
            lines = chunk if end == len(chunk) and not self._partial else chunk[:end]
            self._console.add(self, self._partial + lines if self._partial else lines)
            self._partial = chunk[end:]
        else:
            self._partial += chunk
        if len(self._partial) >= PARTIAL_BYTES:
            self._console.add(self, self._partial)
            self._partial = b""
