"""How a worker's slot reaches an agent with whom it shares no memory, and what is told.

A file is written and read, never mapped: whoever cuts it short, and a disk that is
full, would end the process with SIGBUS. A connection is written without ever waiting:
what finds no room is dropped, and the newest slot follows later.

A script may close descriptors that it does not know, and open others: their numbers are
ours no longer. So each use is preceded by a look whether ours is still behind it.
"""

from __future__ import annotations

import fcntl
import os
import socket
import time

from dsup_runtime import contract

TYPE_CHECKING = False  # typing would be a large part of this import
if TYPE_CHECKING:
    from collections.abc import Callable

ANSWER_S = 5.0
"""How long the agent may take for its answer to a worker that makes itself known."""

_OFTEN_NS = 1_000_000
"""Steps of a millisecond and more are all told: a verdict compares the ranks' steps."""

_HIGH_FD = 64
_CHUNK_BYTES = 1 << 16
_CHUNKS_MAX = 16


class _Descriptor:
    """A descriptor of ours, above the numbers that scripts use, as long as it is."""

    __slots__ = ("_known", "fd")

    def __init__(self, fd: int) -> None:
        try:
            self.fd = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _HIGH_FD)
            os.close(fd)
        except OSError:  # so many may not be open
            self.fd = fd
        self._known = self._look()

    def is_ours(self) -> bool:
        try:
            return self._look() == self._known
        except OSError:
            return False

    def close(self) -> None:
        if self.is_ours():
            os.close(self.fd)

    def _look(self) -> tuple[int, int]:
        found = os.fstat(self.fd)
        return found.st_dev, found.st_ino


class FileCarrier:
    """Writes a slot into the page's file and reads the page.

    Args:
        fd: the file, open for both; this object closes it.
        index: the slot.
        page_bytes: the size of the page.
    """

    __slots__ = ("_file", "_offset", "_page_bytes", "every_ns", "lost")

    def __init__(self, fd: int, index: int, page_bytes: int) -> None:
        self.every_ns = _OFTEN_NS
        self.lost = False
        self._file = _Descriptor(fd)
        self._page_bytes = page_bytes
        self._offset = contract.slot_offset(index) * contract.WORD_BYTES

    def hold(self, *, unsure: Callable[[], bool]) -> bool:
        """Hold the slot for this process; return False if another one does.

        Pids say nothing between containers; a lock does, and ends with its process.

        Args:
            unsure: whether another process holds it, where files cannot be locked.
        """
        length = contract.SLOT_BYTES
        how = fcntl.LOCK_EX | fcntl.LOCK_NB
        try:
            fcntl.lockf(self._file.fd, how, length, self._offset)
        except (BlockingIOError, PermissionError):
            return False
        except OSError:
            return not unsure()
        return True

    def exchange(self, mine: memoryview) -> bytes | None:
        """Write the slot; return the page, or None if it is none any more."""
        if self.lost or not self._file.is_ours():
            self.lost = True
            return None
        try:
            os.pwrite(self._file.fd, mine, self._offset)
            return self.read()
        except OSError:  # a full disk, a file system that went away: perhaps not later
            return None

    def read(self) -> bytes | None:
        """Return the page; None if the file is too short for one."""
        page = os.pread(self._file.fd, self._page_bytes, 0)
        return page if len(page) == self._page_bytes else None

    def close(self) -> None:
        """Let go."""
        self._file.close()


class SocketCarrier:
    """Sends a slot over a connection on which pages come back.

    Args:
        connection: this object closes it.
        page_bytes: the size of a page.
    """

    __slots__ = (
        "_came",
        "_owed",
        "_page_bytes",
        "_place",
        "_socket",
        "every_ns",
        "lost",
    )

    def __init__(self, connection: socket.socket, page_bytes: int) -> None:
        self.every_ns = _OFTEN_NS
        self.lost = False
        self._page_bytes = page_bytes
        self._place = _Descriptor(connection.detach())
        self._socket = socket.socket(fileno=self._place.fd)
        self._socket.setblocking(False)
        self._owed = b""
        self._came = bytearray()

    def exchange(self, mine: memoryview) -> bytes | None:
        """Send the slot if there is room for it; return the newest page that came."""
        if self.lost or not self._place.is_ours():
            self.lost = True
            return None
        try:
            self._send(bytes(mine))
            return self._receive()
        except OSError:  # reset: the agent has gone, or wants us no more
            self.lost = True
            return None

    def close(self) -> None:
        """Let go."""
        self._socket.detach()
        self._place.close()

    def _send(self, frame: bytes) -> None:
        """Send a frame; the rest of one that was cut goes first, or nothing does."""
        try:
            if self._owed:
                self._owed = self._owed[self._socket.send(self._owed) :]
            if not self._owed:
                self._owed = frame
                self._owed = frame[self._socket.send(frame) :]
        except BlockingIOError:
            # A frame of which nothing has gone yet is superseded by the next one.
            if len(self._owed) == len(frame):
                self._owed = b""

    def _receive(self) -> bytes | None:
        newest = None
        for _ in range(_CHUNKS_MAX):
            try:
                chunk = self._socket.recv(_CHUNK_BYTES)
            except BlockingIOError:
                break
            if not chunk:
                self.lost = True
                break
            self._came += chunk
            whole = len(self._came) // self._page_bytes * self._page_bytes
            if whole:
                newest = bytes(self._came[whole - self._page_bytes : whole])
                del self._came[:whole]
        return newest


def open_page(path: str) -> int:
    """Return a descriptor of a page's file.

    Raises:
        OSError: if there is none, or it is a link, or cannot be read and written.
    """
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    return os.open(path, flags)


def connect(address: str, hello: bytes) -> tuple[socket.socket, bytes]:
    """Make oneself known to the agent; return the connection and the page it answers.

    Args:
        address: ``ADDRESS:PORT``, the address as a number.
        hello: what is said first.

    Raises:
        OSError: if nobody is there, or none of dsup's, or it did not answer in time.
    """
    host, _, port = address.rpartition(":")
    socket.inet_pton(socket.AF_INET, host)  # a name might be looked up for long
    until_s = time.monotonic() + ANSWER_S
    connection = socket.create_connection((host, int(port)), timeout=ANSWER_S)
    try:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(hello)
        header = _exactly(connection, contract.page_bytes(0), until_s)
        slots = memoryview(header).cast("q")[contract.HEADER_SLOTS]
        sound = min(max(slots, 0), contract.SLOTS_MAX)  # or it will not fit
        rest = _exactly(connection, sound * contract.SLOT_BYTES, until_s)
    except OSError:
        connection.close()
        raise
    return connection, header + rest


def _exactly(connection: socket.socket, size: int, until_s: float) -> bytes:
    came = bytearray()
    while len(came) < size:
        connection.settimeout(max(0.001, until_s - time.monotonic()))
        chunk = connection.recv(size - len(came))
        if not chunk:
            raise ConnectionResetError("the agent has hung up")
        came += chunk
    return bytes(came)
