"""Locks on whole files that anybody can ask about without taking one (fcntl(2), OFD).

Unlike those of flock(2), they can be looked at, so that two who look do not see each
other; they belong to a descriptor, and go when it is closed. NFS passes them on.
"""

from __future__ import annotations

import fcntl
import struct
from typing import Final

_FLOCK: Final = struct.Struct("@hhqqi")
"""``struct flock``: type, whence, start, length (0 for all) and pid (0, always)."""


def share(fd: int) -> None:
    """Hold a file together with others; the descriptor must be readable.

    Raises:
        BlockingIOError: somebody has it for himself; it may be free later.
        OSError: the file system has no locks.
    """
    _take(fd, fcntl.F_RDLCK)


def seize(fd: int) -> None:
    """Hold a file alone; the descriptor must be writable.

    Raises:
        BlockingIOError: somebody holds it.
        OSError: the file system has no locks.
    """
    _take(fd, fcntl.F_WRLCK)


def is_shared(fd: int) -> bool | None:
    """Return whether somebody holds a file as ``share`` does, and take nothing.

    Returns:
        None where nobody can tell: the file system has no locks, or one who has the
        file for himself keeps the others waiting.
    """
    asked = _FLOCK.pack(fcntl.F_WRLCK, 0, 0, 0, 0)
    try:
        told, *_ = _FLOCK.unpack(fcntl.fcntl(fd, fcntl.F_OFD_GETLK, asked))
    except OSError:
        return None
    return {fcntl.F_RDLCK: True, fcntl.F_UNLCK: False}.get(told)


def _take(fd: int, kind: int) -> None:
    wanted = _FLOCK.pack(kind, 0, 0, 0, 0)
    try:
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, wanted)
    except PermissionError as error:  # as some file systems say it
        raise BlockingIOError(error.errno, error.strerror) from None
