"""One standard descriptor, written to without ever blocking on its reader."""

from __future__ import annotations

import errno
import fcntl
import os
import select
import socket
import stat
import termios
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

SLICE_BYTES = 4096
"""What a pipe that polls as writable takes at once; more could block."""

COLUMNS = 80

DISK_FULL = (errno.ENOSPC, errno.EDQUOT)

Data = bytes | memoryview


class Sink:
    """Where console lines go.

    The shell's description is shared with other processes, so O_NONBLOCK is never set
    on it: terminals, pipes and devices are opened a second time. A regular file is
    not, because a second description has an offset of its own and would overwrite.

    Attributes:
        fd: what to poll for writability.
        pollable: False where a write never waits for a reader.
        terminal: whether a person may look at it.
    """

    def __init__(self, fd: int) -> None:
        """Open the way to a standard descriptor.

        Raises:
            OSError: the descriptor is closed, or cannot be written to.
        """
        if fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
            # Whatever took the number of a closed descriptor, it is no console.
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        mode = os.fstat(fd).st_mode
        self.fd = fd
        self.pollable = not stat.S_ISREG(mode)
        self.terminal = os.isatty(fd)
        self._put: Callable[[Data], int] = self._put_plain
        if stat.S_ISSOCK(mode):
            self._put = self._put_socket
        elif self.pollable:
            self._reopen(fd)

    def _reopen(self, fd: int) -> None:
        flags = os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        try:
            self.fd = os.open(f"/proc/self/fd/{fd}", flags)
        except OSError:
            self._put = self._put_polled

    def write(self, data: Data) -> int:
        """Write what fits now and return how many bytes that was.

        Raises:
            BlockingIOError: nothing fits.
            OSError: the reader has gone, or the disk is full.
        """
        return self._put(data)

    def columns(self) -> int:
        """Return how wide the terminal is, 80 where that cannot be told."""
        try:
            return termios.tcgetwinsize(self.fd)[1] or COLUMNS
        except (OSError, termios.error):
            return COLUMNS

    def wait(self, timeout_s: float) -> bool:
        """Return whether something fits, after at most that long."""
        poll = select.poll()
        poll.register(self.fd, select.POLLOUT)
        return bool(poll.poll(max(0.0, timeout_s) * 1000))

    def _put_plain(self, data: Data) -> int:
        return os.write(self.fd, data)

    def _put_socket(self, data: Data) -> int:
        borrowed = socket.socket(fileno=self.fd)
        try:
            return borrowed.send(data, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
        finally:
            borrowed.detach()

    def _put_polled(self, data: Data) -> int:
        if not self.wait(0):
            raise BlockingIOError
        return os.write(self.fd, data[:SLICE_BYTES])


def open_sinks() -> tuple[Sink | None, Sink | None]:
    """Return the sinks of descriptors 1 and 2, None for a closed one.

    Both are one sink where they lead to the same place: two non-blocking writers
    would meet in the middle of a line.
    """
    out, err = _open_sink(1), _open_sink(2)
    if out and err and os.path.samestat(os.fstat(1), os.fstat(2)):
        return err, err
    return out, err


def _open_sink(fd: int) -> Sink | None:
    try:
        return Sink(fd)
    except OSError:
        return None
