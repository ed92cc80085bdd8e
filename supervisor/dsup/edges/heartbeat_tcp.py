"""Heartbeats over TCP, for ranks that share neither memory nor a directory.

A rank says who it is, and a token proves it; it is answered with the page, and sends
its slot from then on. Slots are not worth a wake-up each: they wait in the kernel until
the page is looked at. The agent waits for nobody: who does not speak is dropped, a rank
that does not read gets the newest page when it does.
"""

from __future__ import annotations

import errno
import hmac
import os
import socket
import time
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from dsup_runtime import contract

ADDRESS: Final = "127.0.0.1"
HELLO_S: Final = 2.0
"""How long one who has connected may take to say who it is."""

STRANGERS_MAX: Final = 64
"""So many may have connected and not spoken; one more takes the oldest's place."""

_BACKLOG: Final = 512
_ACCEPTS_MAX: Final = 64
_CHUNK_BYTES: Final = 1 << 16
_CHUNKS_MAX: Final = 64
_MUTE: Final = "it did not say who it is"
_NO_ROOM: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Watcher(Protocol):
    """What is needed of the agent's loop."""

    def watch(self, fd: int, handler: Callable[[], None]) -> None:
        """Call the handler whenever the descriptor is ready."""

    def unwatch(self, fd: int) -> None:
        """Forget the descriptor."""


class _Stranger:
    """One who has connected and has not said yet who it is."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.since_s = time.monotonic()
        self.said = b""

    def listen(self) -> bool:
        """Hear what it says, its hello at most; return whether it is still there."""
        missing = contract.HELLO.size - len(self.said)
        try:
            chunk = self.connection.recv(missing)
        except BlockingIOError:
            return True
        except OSError:
            return False
        self.said += chunk
        return bool(chunk)

    @property
    def complete(self) -> bool:
        """Whether it has said all of its hello."""
        return len(self.said) == contract.HELLO.size


class _Worker:
    """A rank that is connected.

    Attributes:
        slot: the newest slot it has sent; empty for none.
        ended: it has hung up.
    """

    def __init__(self, connection: socket.socket) -> None:
        self.slot = b""
        self.ended = False
        self._connection = connection
        self._cut = b""
        self._owed = b""
        self._told = b""

    def listen(self) -> None:
        """Take in what has come, so much at most that no rank can keep the agent."""
        for _ in range(_CHUNKS_MAX):
            try:
                chunk = self._connection.recv(_CHUNK_BYTES)
            except BlockingIOError:
                return
            except OSError:
                chunk = b""
            if not chunk:
                self.ended = True
                return
            came = self._cut + chunk
            whole = len(came) // contract.SLOT_BYTES * contract.SLOT_BYTES
            if whole:
                self.slot = came[whole - contract.SLOT_BYTES : whole]
            self._cut = came[whole:]

    def tell(self, image: bytes) -> None:
        """Send a page unless it is known; one that was cut short is ended first."""
        try:
            if self._owed:
                self._owed = self._owed[self._connection.send(self._owed) :]
            if not self._owed and image != self._told:
                sent = self._connection.send(image)
                self._told, self._owed = image, image[sent:]
        except BlockingIOError:
            return  # it does not read: the next look tries again
        except OSError:
            self.ended = True

    def close(self) -> None:
        """Hang up."""
        self._connection.close()


class TcpCarrier:
    """The port at which the ranks of one attempt report.

    Args:
        watcher: calls back when somebody connects, or says who it is.
        say: called once if somebody was turned away, with the reason.
        image: the page as it is at first.

    Attributes:
        where: what ``DSUP_HEARTBEAT`` says of it, but for the slot.
        token: what proves a rank to be one.

    Raises:
        OSError: if no port can be had.
    """

    def __init__(
        self, watcher: Watcher, say: Callable[[str], None], image: bytes
    ) -> None:
        self._watcher = watcher
        self._say: Callable[[str], None] | None = say
        self._image = image
        self._slots = memoryview(image).cast("q")[contract.HEADER_SLOTS]
        self._attempt = memoryview(image).cast("q")[contract.HEADER_ATTEMPT]
        self._strangers: dict[int, _Stranger] = {}
        self._workers: dict[int, _Worker] = {}
        self.token = os.urandom(16).hex()
        self._listener = socket.create_server((ADDRESS, 0), backlog=_BACKLOG)
        self._listener.setblocking(False)
        self.where = f"tcp:{ADDRESS}:{self._listener.getsockname()[1]}"
        self._listening = False
        self._listen()

    def pull(self, words: memoryview[int]) -> None:
        """Store the newest slot of each rank, and see to what is overdue."""
        for index, worker in tuple(self._workers.items()):
            worker.listen()
            if worker.slot:
                _store(words, index, worker.slot)
            worker.tell(self._image)
            if worker.ended:
                worker.close()
                del self._workers[index]
        late_s = time.monotonic() - HELLO_S
        for stranger in tuple(self._strangers.values()):
            if stranger.since_s < late_s:
                self._turn_away(stranger, _MUTE)
        self._listen()

    def push(self, words: memoryview[int]) -> None:
        """Tell every rank the page."""
        self._image = bytes(words)
        for worker in self._workers.values():
            worker.tell(self._image)

    def close(self) -> None:
        """Hang up on everybody."""
        self._watcher.unwatch(self._listener.fileno())
        self._listener.close()
        for stranger in tuple(self._strangers.values()):
            self._drop(stranger)
        for worker in self._workers.values():
            worker.close()
        self._workers = {}

    def _listen(self) -> None:
        if not self._listening:
            self._watcher.watch(self._listener.fileno(), self._accept)
            self._listening = True

    def _accept(self) -> None:
        for _ in range(_ACCEPTS_MAX):
            try:
                connection, _ = self._listener.accept()
            except OSError as error:
                if error.errno in _NO_ROOM:
                    # It stays ready: the next look at the page tries again.
                    self._watcher.unwatch(self._listener.fileno())
                    self._listening = False
                return
            self._meet(connection)

    def _meet(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if len(self._strangers) == STRANGERS_MAX:
            self._turn_away(next(iter(self._strangers.values())), _MUTE)
        stranger = _Stranger(connection)
        self._strangers[connection.fileno()] = stranger
        self._watcher.watch(connection.fileno(), partial(self._hear, stranger))
        self._hear(stranger)

    def _hear(self, stranger: _Stranger) -> None:
        if not stranger.listen():
            self._turn_away(stranger, _MUTE)
        elif stranger.complete:
            index, reason = self._know(stranger.said)
            if reason:
                self._turn_away(stranger, reason)
            else:
                self._admit(stranger, index)

    def _know(self, hello: bytes) -> tuple[int, str]:
        """Return the slot of one who has said who it is, and why it is not let in."""
        magic, attempt, index, token = contract.HELLO.unpack(hello)
        if magic != contract.HELLO_MAGIC:
            return index, "it does not speak as this dsup_runtime does"
        if not hmac.compare_digest(token, self.token.encode()):
            return index, "it has not the token of this attempt"
        if attempt != self._attempt or not 0 <= index < self._slots:
            return index, f"it is rank {index} of attempt {attempt}"
        return index, ""

    def _admit(self, stranger: _Stranger, index: int) -> None:
        """Give a slot to who asks for it, unless another living process has it."""
        before = self._workers.get(index)
        if before:
            before.listen()
            if not before.ended:
                self._drop(stranger)
                return
            before.close()
        self._watcher.unwatch(stranger.connection.fileno())
        del self._strangers[stranger.connection.fileno()]
        worker = self._workers[index] = _Worker(stranger.connection)
        worker.slot = before.slot if before else b""
        worker.tell(self._image)

    def _turn_away(self, stranger: _Stranger, reason: str) -> None:
        if self._say:
            self._say(f"turned somebody away from the heartbeat port: {reason}")
            self._say = None
        self._drop(stranger)

    def _drop(self, stranger: _Stranger) -> None:
        self._watcher.unwatch(stranger.connection.fileno())
        del self._strangers[stranger.connection.fileno()]
        stranger.connection.close()


def _store(words: memoryview[int], index: int, slot: bytes) -> None:
    """Store a slot as its rank sent it, but for the agent's own word."""
    first = contract.slot_offset(index)
    mark = words[first + contract.SLOT_DEAD]
    words[first : first + contract.SLOT_WORDS] = memoryview(slot).cast("q")
    words[first + contract.SLOT_DEAD] = mark
