"""The agent's handle on one scribe process: start it, talk to it, kill it, reap it."""

from __future__ import annotations

import fcntl
import os
import select
import signal
import socket
from typing import TYPE_CHECKING

from dsup.edges.scribe import process, protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dsup.edges.scribe.held import Held
    from dsup.edges.scribe.protocol import Answer, Message, Settings

REAPED_ELSEWHERE = -1
FIRST_FREE_FD = 3


def above_stdio(fd: int) -> int:
    """Move a descriptor off 0, 1 and 2, which a scribe takes for the console."""
    if fd >= FIRST_FREE_FD:
        return fd
    moved = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, FIRST_FREE_FD)
    os.close(fd)
    return moved


class Child:
    """One scribe process and the agent's end of its control pair; never blocks.

    Attributes:
        pid: the scribe's process id.
        hung_up: whether its end of the pair is closed: it has died, or is about to.
    """

    def __init__(
        self,
        settings: Settings,
        held: Held,
        now: Callable[[], float],
        epoll: select.epoll,
    ) -> None:
        """Fork a scribe.

        Raises:
            OSError: the kernel has no process, memory or descriptor for it.
        """
        ours, theirs = (
            socket.socket(fileno=above_stdio(end.detach()))
            for end in socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        )
        # Twice the largest message, so that one always fits into an empty queue.
        size = 2 * protocol.MESSAGE_MAX_BYTES
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, size)
        ours.setblocking(False)
        theirs.setblocking(False)
        try:
            self.pid = os.fork()
        except OSError:
            ours.close()
            theirs.close()
            raise
        if not self.pid:
            process.run(settings, theirs, held, now)
        theirs.close()
        self.hung_up = False
        self._socket = ours
        self._epoll = epoll
        self._pidfd = os.pidfd_open(self.pid)
        epoll.register(ours, select.EPOLLIN)
        epoll.register(self._pidfd, select.EPOLLIN)

    def send(self, number: int, message: Message) -> bool:
        """Send a message; return False when it has to wait."""
        data = [protocol.encode(number, message)]
        try:
            socket.send_fds(self._socket, data, list(message.fds), socket.MSG_NOSIGNAL)
        except (
            OSError
        ):  # full, or too many descriptors in flight; or dead: seen by read
            return False
        return True

    def want_write(self, *, wanted: bool) -> None:
        """Wake up when a message can be sent, or no longer."""
        if not self.hung_up:
            events = select.EPOLLIN | (select.EPOLLOUT if wanted else 0)
            self._epoll.modify(self._socket, events)

    def answers(self) -> Iterator[Answer]:
        """Yield what the scribe has answered."""
        while not self.hung_up:
            try:
                data = self._socket.recv(protocol.ANSWER_MAX_BYTES)
            except BlockingIOError:
                return
            except ConnectionError:
                data = b""
            if data:
                yield protocol.decode_answer(data)
            else:
                self._hang_up()

    def kill(self) -> None:
        """Send SIGKILL; a process that waits for a disk takes it when that answers."""
        try:
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
        except ProcessLookupError:
            return

    def reap(self) -> int | None:
        """Return how it ended (an exit code, or minus a signal), None if it lives."""
        try:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
        except ChildProcessError:
            return REAPED_ELSEWHERE
        return os.waitstatus_to_exitcode(status) if pid else None

    def close(self) -> None:
        """Close the agent's descriptors of it."""
        if not self.hung_up:
            self._hang_up()
        self._epoll.unregister(self._pidfd)
        os.close(self._pidfd)

    def _hang_up(self) -> None:
        self.hung_up = True
        self._epoll.unregister(self._socket)
        self._socket.close()
