"""Whoever asks a running agent: finds its socket, and gets its answer, within a time.

Everything that comes back is capped and looked at as somebody else's.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import stat
import struct
from collections.abc import Mapping
from typing import Any, Final

from dsup.core.errors import DsupError
from dsup_runtime import contract

DEADLINE_S: Final = 10.0
ANSWER_MAX_BYTES: Final = 64 * 1024 * 1024

_HEAD_MAX_BYTES: Final = 4096
_PATH_MAX_BYTES: Final = 107
_FD_BYTES: Final = struct.calcsize("=i")
_DIRECTORY: Final = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC


class NoAnswerError(DsupError):
    """The agent cannot be asked, or refuses."""

    exit_code = 1


class NotRunningError(NoAnswerError):
    """Nobody listens at the socket: the run is over, or its agent was killed."""


def socket_of(run_dir: str, known: Mapping[str, object]) -> str:
    """Return the path of a run's control socket, whether it is there or not.

    Args:
        run_dir: the run directory.
        known: its run.json; ``control`` in it names another place.
    """
    elsewhere = known.get("control")
    if isinstance(elsewhere, str) and os.path.isabs(elsewhere):
        return elsewhere
    return os.path.join(run_dir, contract.CONTROL_SOCKET)


def listens(path: str) -> bool:
    """Return whether an agent of this user's, or any to root, listens at a socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.setblocking(False)
        try:
            _connect(connection, path)
        except BlockingIOError:  # others wait there, too
            return True
        except OSError:
            return False
    return True


def ask(
    path: str, request: Mapping[str, object], deadline_s: float = DEADLINE_S
) -> Mapping[str, Any]:
    """Return an agent's answer to a request; empty where it is only a yes.

    Args:
        path: of its control socket.
        request: such as ``{"ask": "status"}``.
        deadline_s: how long it may take, seconds.

    Raises:
        NotRunningError: nobody listens there.
        NoAnswerError: it belongs to another user, refuses, or does not answer in time.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        # Not settimeout: it would not wait for a place in a queue that is full.
        limit = struct.pack("@ll", int(deadline_s), int(deadline_s % 1 * 1e6))
        for option in (socket.SO_SNDTIMEO, socket.SO_RCVTIMEO):
            connection.setsockopt(socket.SOL_SOCKET, option, limit)
        try:
            _connect(connection, path)
            head, fd = _exchange(connection, json.dumps(request).encode())
        except BlockingIOError:
            raise NoAnswerError(
                f"cannot ask the agent at {path}, because it did not answer within "
                f"{deadline_s:g} s (is it stopped? see its state in ps)"
            ) from None
        except OSError as error:
            raise _unreachable(path, error) from None
    try:
        return _answer(path, head, fd)
    finally:
        if fd >= 0:
            os.close(fd)


def _connect(connection: socket.socket, path: str) -> None:
    """Connect; a path too long for a socket is reached through its directory."""
    if len(os.fsencode(path)) <= _PATH_MAX_BYTES:
        connection.connect(path)
        return
    directory, name = os.path.split(path)
    held = os.open(directory, _DIRECTORY)
    try:
        connection.connect(f"/proc/self/fd/{held}/{name}")
    finally:
        os.close(held)


def _exchange(connection: socket.socket, request: bytes) -> tuple[bytes, int]:
    """Send a request; return the answer, and the descriptor that came with it or -1."""
    # Refused before it could ask: the answer says why.
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        connection.send(request)
    try:
        return _received(connection)
    except ConnectionResetError:  # told once, before what was sent
        return _received(connection)


def _received(connection: socket.socket) -> tuple[bytes, int]:
    room = socket.CMSG_SPACE(_FD_BYTES)
    head, passed, _, _ = connection.recvmsg(
        _HEAD_MAX_BYTES, room, socket.MSG_CMSG_CLOEXEC
    )
    for level, kind, data in passed:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            return head, struct.unpack("=i", data[:_FD_BYTES])[0]
    return head, -1


def _answer(path: str, head: bytes, fd: int) -> Mapping[str, Any]:
    told = _loads(path, head)
    error = told.get("error")
    if isinstance(error, str):
        raise NoAnswerError(error)
    if told.get("ok") is not True:
        raise _senseless(path)
    if fd < 0:
        return {}
    found = os.fstat(fd)
    if not stat.S_ISREG(found.st_mode) or found.st_size > ANSWER_MAX_BYTES:
        raise _senseless(path)
    return _loads(path, os.pread(fd, found.st_size, 0))


def _loads(path: str, data: bytes) -> dict[str, Any]:
    try:
        told = json.loads(data)
    except (ValueError, RecursionError):
        told = None
    if not isinstance(told, dict):
        raise _senseless(path)
    return told


def _senseless(path: str) -> NoAnswerError:
    return NoAnswerError(
        f"cannot ask the agent at {path}, because its answer makes no sense (is it a "
        "dsup of another version?)"
    )


def _unreachable(path: str, error: OSError) -> NoAnswerError:
    match error:
        case FileNotFoundError() | NotADirectoryError():
            return NotRunningError(
                f"cannot ask the agent at {path}, because there is no such socket (the "
                "run is over, or was never here)"
            )
        case ConnectionRefusedError():
            return NotRunningError(
                f"cannot ask the agent at {path}, because nobody listens there any "
                "more (the agent was killed, or runs on another node)"
            )
        case PermissionError():
            return NoAnswerError(
                f"cannot ask the agent at {path}, because it is another user's (ask as "
                "that user, or as root)"
            )
        case _:
            reason = str(error.strerror or error).lower()
            return NoAnswerError(f"cannot ask the agent at {path}, because {reason}")
