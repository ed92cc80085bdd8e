"""The way to the service manager: the guard passes on what the agent says.

The guard is the service's main process, and whom a manager listens to should be nobody
else: a rank that runs as the same user could take the agent's part. So the agent speaks
into a pair of sockets, and a signal tells the guard of it. Nothing is passed on that
the agent did not say: a watchdog that hears of it knows that the agent lives.
"""

from __future__ import annotations

import fcntl
import os
import socket
from typing import Final

_PATH_MAX_BYTES: Final = 107
_MESSAGE_MAX_BYTES: Final = 4096


def address(name: str) -> bytes:
    """Return a socket's address; empty for none, and for one of another family."""
    path = name.encode(errors="surrogateescape")
    if not path.startswith((b"/", b"@")) or len(path) > _PATH_MAX_BYTES:
        return b""
    return b"\0" + path[1:] if path.startswith(b"@") else path


def send(message: bytes, to: bytes) -> bool:
    """Send a message, unless it cannot be taken now; return whether it was sent."""
    kind = socket.SOCK_DGRAM | socket.SOCK_NONBLOCK
    try:
        with socket.socket(socket.AF_UNIX, kind) as sender:
            sender.sendto(message, to)
    except OSError:
        return False
    return True


class Relay:
    """From the agent to the manager; made before the agent is forked.

    Args:
        name: ``NOTIFY_SOCKET``.

    Raises:
        OSError: there is no descriptor left.
    """

    def __init__(self, name: str) -> None:
        self._address = address(name)
        kind = socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK
        self._agents, self._guards = socket.socketpair(socket.AF_UNIX, kind)

    def become_agents(self) -> int:
        """Return the descriptor that the agent writes into; called in the agent."""
        self._guards.close()
        return self._agents.detach()

    def become_guards(self) -> None:
        """Have SIGIO, which is blocked, tell of messages; called in the guard."""
        self._agents.close()
        fcntl.fcntl(self._guards, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(self._guards, fcntl.F_SETFL, os.O_NONBLOCK | os.O_ASYNC)

    def pass_on(self) -> bool:
        """Pass on what the agent has said; return whether some of it is left."""
        while message := self._waiting(socket.MSG_PEEK):
            if not send(message, self._address):
                return True
            self._waiting(0)
        return False

    def _waiting(self, flags: int) -> bytes:
        try:
            return self._guards.recv(_MESSAGE_MAX_BYTES, flags)
        except OSError:
            return b""
