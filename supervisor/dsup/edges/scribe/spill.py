"""Throwing output away while nobody can write it, so that no rank waits."""

from __future__ import annotations

import fcntl
import os
import select
import struct
import termios
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

READ_BYTES = 64 * 1024
READS_A_TURN = 4


def waiting(fd: int) -> int:
    """Return how many bytes a pipe holds."""
    held = fcntl.ioctl(fd, termios.FIONREAD, bytes(4))
    return int(struct.unpack("i", held)[0])


def relieve(fd: int) -> int:
    """Throw away the older half of a pipe that is nearly full; return its size.

    Whoever reads this pipe has stopped, but may go on: what is left is still there.
    """
    capacity = fcntl.fcntl(fd, fcntl.F_GETPIPE_SZ)
    held = waiting(fd)
    if held < capacity * 3 // 4:
        return 0
    try:
        return len(os.read(fd, held - capacity // 2))
    except BlockingIOError:
        return 0


class Spill:
    """Read ends that the agent itself empties.

    Attributes:
        active: whether it does so now.
    """

    def __init__(self, epoll: select.epoll) -> None:
        self.active = False
        self._epoll = epoll
        self._fds: set[int] = set()
        self._bytes = 0

    def begin(self, fds: Iterable[int]) -> None:
        """Throw away what comes out of these, from now on."""
        self.active = True
        for fd in fds:
            if fd not in self._fds:
                self._fds.add(fd)
                self._epoll.register(fd, select.EPOLLIN)

    def relieve(self, fds: Iterable[int]) -> None:
        """Make room in pipes that are nearly full, so that no rank waits."""
        self._bytes += sum(map(relieve, fds))

    def read(self) -> None:
        """Throw away what has come, a bounded amount a stream."""
        for fd in list(self._fds):
            if self._empty(fd):
                self.forget((fd,))

    def forget(self, fds: Iterable[int]) -> None:
        """Leave these alone, because they have ended or are given to a scribe."""
        for fd in self._fds.intersection(fds):
            self._fds.discard(fd)
            self._epoll.unregister(fd)

    def end(self) -> int:
        """Throw nothing away any more; return how many bytes it was since."""
        self.forget(list(self._fds))
        count, self._bytes, self.active = self._bytes, 0, False
        return count

    def _empty(self, fd: int) -> bool:
        for _ in range(READS_A_TURN):
            try:
                chunk = os.read(fd, READ_BYTES)
            except BlockingIOError:
                return False
            except OSError:
                return True
            if not chunk:
                return True
            self._bytes += len(chunk)
        return False
