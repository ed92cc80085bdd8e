"""What workers tell of themselves: datagrams on a socket that each has inherited."""

from __future__ import annotations

import contextlib
import socket
from typing import Final

from dsup_runtime import contract

_READ_MAX: Final = 16


def read(fd: int) -> list[bytes]:
    """Return the notes that wait, at most 16; never block.

    One that is longer than ``contract.NOTE_MAX_BYTES`` is dropped: cut JSON is useless.

    Args:
        fd: our end of a rank's socket; it stays open.
    """
    found = []
    channel = socket.socket(fileno=fd)
    try:
        for _ in range(_READ_MAX):
            raw, _, flags, _ = channel.recvmsg(
                contract.NOTE_MAX_BYTES, 0, socket.MSG_DONTWAIT
            )
            if not flags & socket.MSG_TRUNC:
                found.append(raw)
    except OSError:  # none is left, or the rank's end has gone
        return found
    finally:
        channel.detach()
    return found


def deafen(fd: int) -> None:
    """Take no more notes; who sends on gets EPIPE, and does not wait for a reader.

    Args:
        fd: our end of a rank's socket; it stays open, and what waits is dropped.
    """
    channel = socket.socket(fileno=fd)
    with contextlib.suppress(OSError):
        channel.shutdown(socket.SHUT_RD)
        # One that waits for room hears of it only when room is made.
        while channel.recv(1, socket.MSG_DONTWAIT):
            continue
    channel.detach()
