"""What this worker tells dsup's agent: one datagram of JSON a note, never waiting.

A note is a doorbell, not a letter: it may be lost, and nobody answers. What has to
arrive is a word of the heartbeat page, or a file.
"""

from __future__ import annotations

import json
import os
import socket
import stat
from typing import Final, NamedTuple

from dsup_runtime import contract, heartbeat

VERSION: Final = 1

_TEXT_MAX_CHARS: Final = 1024
"""What a text keeps of itself in a note that is too long."""


class _Channel(NamedTuple):
    """The inherited socket: its number, what it was then, and whose it is."""

    fd: int
    inode: int
    pid: int


class _Line:
    """Where this process's notes go; looked up once."""

    __slots__ = ("channel", "looked")

    def __init__(self) -> None:
        self.channel: _Channel | None = None
        self.looked = False

    def look(self) -> _Channel | None:
        """Return the channel; None unless it is proven to be this process's own."""
        if not self.looked:
            self.looked = True
            self.channel = _prove()
        if self.channel is None or self.channel.pid != os.getpid():
            return None  # a forked helper does not speak for its rank
        return self.channel


_line = _Line()


def send(kind: str, **fields: object) -> bool:
    """Tell the agent something; never waits, never raises.

    Args:
        kind: which note it is: stop, outcome.
        fields: what it says, as JSON can hold it; other values become their texts. If
            it is too long for one datagram, its texts are cut.

    Returns:
        Whether the agent's socket took it: False without dsup, and when it is full.
    """
    channel = _line.look()
    if channel is None:
        return False
    try:
        return _send(channel, _encode({"v": VERSION, "kind": kind, **fields}))
    except Exception:  # noqa: BLE001 (values of the user's own making)
        return False


def _encode(note: dict[str, object]) -> bytes:
    data = json.dumps(note, default=str).encode()
    if len(data) > contract.NOTE_MAX_BYTES:
        data = json.dumps(_shorten(note), default=str).encode()
    return data


def _shorten(value: object) -> object:
    """Return a value whose texts have lost their middles: the end says what failed."""
    if isinstance(value, str) and len(value) > _TEXT_MAX_CHARS:
        half = _TEXT_MAX_CHARS // 2
        return f"{value[:half]} ... {value[-half:]}"
    if isinstance(value, dict):
        return {name: _shorten(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_shorten(each) for each in value]
    return value


def _send(channel: _Channel, data: bytes) -> bool:
    if len(data) > contract.NOTE_MAX_BYTES:
        return False
    # Whatever else has this number by now is not to be written to.
    if os.fstat(channel.fd).st_ino != channel.inode:
        return False
    link = socket.socket(fileno=channel.fd)
    try:
        return link.send(data, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL) == len(data)
    finally:
        link.detach()


def _prove() -> _Channel | None:
    """Return the socket that DSUP_NOTES names; None if it names none of ours.

    A program that this rank starts has the variable and not the socket: there the
    number may be that of any other. Where there is a page, it knows whose the rank is.
    """
    try:
        fd = contract.parse_notes(contract.variable(contract.NOTES))
        if fd is None or not _is_datagram_socket(fd):
            return None
        if contract.variable(contract.HEARTBEAT) and not heartbeat.supervised():
            return None
        os.set_inheritable(fd, False)
        return _Channel(fd, os.fstat(fd).st_ino, os.getpid())
    except (OSError, OverflowError, ValueError):
        return None


def _is_datagram_socket(fd: int) -> bool:
    if not stat.S_ISSOCK(os.fstat(fd).st_mode):
        return False
    link = socket.socket(fileno=fd)
    try:
        return link.family == socket.AF_UNIX and link.type == socket.SOCK_DGRAM
    finally:
        link.detach()
