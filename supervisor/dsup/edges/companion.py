"""A companion: a process of dsup's own that stays with a run and serves somebody else.

It is forked from the agent after the ranks, and hears of it through a pair of sockets,
one message a datagram. Nothing here waits for it: what it does not take is dropped, one
that dies is replaced a few times, one that is of no use at the end once more, and there
it gets a moment for what it has.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import time
from collections.abc import Callable, Collection
from functools import partial
from typing import Final, NoReturn, Protocol

from dsup.core.printable import printable
from dsup.core.state import NEVER
from dsup.linux import proc

STARTS_MAX: Final = 3
AGAIN_S: Final = 5.0

MESSAGE_MAX_BYTES: Final = 65_536
_WORD_MAX_BYTES: Final = 1024
_OF_NO_USE: Final = frozenset("TtZX")
"""States of a process that is stopped or dead."""


class Watcher(Protocol):
    """What is needed of the agent's loop."""

    def watch(self, fd: int, handler: Callable[[], None]) -> None:
        """Call the handler whenever the descriptor is ready."""

    def unwatch(self, fd: int) -> None:
        """Forget the descriptor."""


class Helpers(Protocol):
    """What is needed of the aides.

    Attributes:
        watcher: the agent's loop.
    """

    watcher: Watcher

    def start(
        self,
        work: Callable[[], bytes],
        deadline_s: float,
        done: Callable[[bytes], None],
        *,
        lasting: bool = False,
        kept: Collection[int] = (),
    ) -> None:
        """Have work done by a child; ``done`` gets its answer, empty for none."""

    def bury(self, pid: int) -> None:
        """Kill a child, and collect it when it has ended."""


class Companion:
    """One such process, and whoever takes its place.

    Args:
        name: what it does, for people: ``the metrics``.
        be: is the process, in the child: it gets its end of the pair, and may return.
        aides: bury it, and wait for it at the end.
        warn: takes what it has to say, and what becomes of it.
        again_s: how long after its death another one is started, seconds.

    Attributes:
        pid: the process; 0 while there is none.
        due_s: when ``look`` is due, agent clock, seconds.
    """

    def __init__(
        self,
        name: str,
        be: Callable[[socket.socket], None],
        aides: Helpers,
        warn: Callable[[str], None],
        again_s: float = AGAIN_S,
    ) -> None:
        self.pid = 0
        self.due_s = NEVER
        self._name = name
        self._be = be
        self._aides = aides
        self._warn = warn
        self._again_s = again_s
        self._pair: socket.socket | None = None
        self._starts = 0
        self._ends = False

    def start(self) -> None:
        """Start it, unless it is there, or was replaced often enough."""
        self.due_s = NEVER
        if self._pair is not None or self._ends or self._starts == STARTS_MAX:
            return
        self._starts += 1
        try:
            self._pair, self.pid = _fork(self._be)
        except OSError as error:
            self._mourn(f"because {str(error.strerror).lower()}")
            return
        self._aides.watcher.watch(self._pair.fileno(), self._hear)

    def look(self, now_s: float) -> None:
        """Replace one that has died, if it is time for that.

        Args:
            now_s: agent clock, seconds.
        """
        if now_s >= self.due_s:
            self.start()

    def renew(self) -> None:
        """Replace one that is dead or stopped, now, however often that was done."""
        found = proc.stat(self.pid) if self._pair else None
        if found is None or found.state in _OF_NO_USE:
            self._leave()
            self._starts = min(self._starts, STARTS_MAX - 1)
            self.start()

    def send(self, message: bytes, fds: Collection[int] = ()) -> bool:
        """Send a message; return False where it cannot be taken now."""
        if self._pair is None:
            return False
        flags = socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL
        try:
            socket.send_fds(self._pair, [message], list(fds), flags)
        except OSError:
            return False
        return True

    def end(self, within_s: float) -> None:
        """Say that nothing more will come, and give it time to finish.

        Args:
            within_s: after so many seconds it is killed.
        """
        self._ends, self.due_s = True, NEVER
        if self._pair is None:
            return
        with contextlib.suppress(OSError):
            self._pair.shutdown(socket.SHUT_WR)
        until_s = time.monotonic() + within_s
        try:
            pidfd = os.pidfd_open(self.pid)
        except OSError:
            self._leave()
            return
        work = partial(_wait, pidfd, within_s)
        done = partial(self._over, pidfd)
        self._aides.start(work, until_s, done, lasting=True, kept=(pidfd,))

    def _over(self, pidfd: int, _: bytes) -> None:
        os.close(pidfd)
        self._hear()
        self._leave()

    def _hear(self) -> None:
        """Take in what it has to say, or that it is gone."""
        while self._pair is not None:
            try:
                said = self._pair.recv(_WORD_MAX_BYTES, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            except OSError:
                said = b""
            if said:
                self._warn(printable(said.decode(errors="replace")))
                continue
            self._leave()
            if not self._ends:
                self._mourn("because the process died")

    def _mourn(self, why: str) -> None:
        if self._starts < STARTS_MAX:
            self.due_s = time.monotonic() + self._again_s
        else:
            self._warn(f"{self._name}: given up, {why} {STARTS_MAX} times")

    def _leave(self) -> None:
        if self._pair is not None:
            self._aides.watcher.unwatch(self._pair.fileno())
            self._pair.close()
            self._pair = None
            self._aides.bury(self.pid)
            self.pid = 0


def say(pair: socket.socket, text: str) -> None:
    """Have the agent warn of something; called in the companion."""
    with contextlib.suppress(OSError):
        pair.send(text.encode(errors="replace")[:_WORD_MAX_BYTES], socket.MSG_DONTWAIT)


def _wait(pidfd: int, within_s: float) -> bytes:
    """Wait for the end of a process; this is the work of an aide."""
    select.select([pidfd], [], [], within_s)
    return b"over"


def _fork(be: Callable[[socket.socket], None]) -> tuple[socket.socket, int]:
    """Return the agent's end of the pair, and the pid of the child.

    Raises:
        OSError: there is no process, or no descriptor, left.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        pid = os.fork()
    except OSError:
        ours.close()
        raise
    else:
        if pid == 0:
            _become(be, theirs)
    finally:
        theirs.close()
    return ours, pid


def _become(be: Callable[[socket.socket], None], pair: socket.socket) -> NoReturn:
    """Be the companion, in the child: no error may leave it, nor any of the agent's."""
    try:
        import gc
        import signal

        from dsup.linux import child, heritage

        child.drop_descriptors({pair.fileno()})
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        # What the agent's garbage holds are descriptors that mean others here.
        gc.freeze()
        with heritage.of_ranks(""):
            be(pair)
        os._exit(0)
    finally:
        os._exit(1)
