"""A directory's file system: room, and how long a small file takes to be safe.

Whoever looks may never come back: each directory has a reader of its own.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from typing import Final

from dsup.checkup.readings import Space
from dsup.core.printable import printable
from dsup.linux.proc import read_text

_WRITTEN_BYTES: Final = 1_048_576
_SYNCS: Final = 3
_PATH_MAX_CHARS: Final = 256
_TYPE_FIELD: Final = 0


def space(path: str, root: str = "", *, writes: bool = True) -> Space:
    """Return what there is to know of a directory; nothing is left in it.

    Args:
        path: the directory, which need not exist yet.
        root: stands for ``/`` where the table of mounts is read.
        writes: try what a file takes that is written and synchronised.
    """
    shown = printable(path)[:_PATH_MAX_CHARS]
    there = _nearest(os.path.abspath(path))
    row = Space(shown, printable(there)[:_PATH_MAX_CHARS])
    try:
        if not stat.S_ISDIR(os.stat(there).st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        room = os.statvfs(there)
    except OSError as error:
        return row._replace(error=_reason(error))
    row = row._replace(
        kind=_kind(there, root),
        free=room.f_bavail * room.f_frsize,
        total=room.f_blocks * room.f_frsize,
        inodes=room.f_favail if room.f_files else None,
    )
    if not writes:
        return row
    try:
        return row._replace(sync_ms=_sync_ms(there))
    except OSError as error:
        return row._replace(error=_reason(error))


def _nearest(path: str) -> str:
    """Return a path, or the nearest one above it that there is."""
    while not os.path.exists(path) and os.path.dirname(path) != path:
        path = os.path.dirname(path)
    return path


def _sync_ms(directory: str) -> float:
    """Return the middle time of some to write 1 MiB and have it safe, milliseconds.

    Raises:
        OSError: if it cannot be written.
    """
    fd = _unnamed(directory)
    try:
        return sorted(_one_sync_ms(fd) for _ in range(_SYNCS))[_SYNCS // 2]
    finally:
        os.close(fd)


def _one_sync_ms(fd: int) -> float:
    began_s = time.monotonic()
    os.pwrite(fd, os.urandom(_WRITTEN_BYTES), 0)
    os.fsync(fd)
    return (time.monotonic() - began_s) * 1000


def _unnamed(directory: str) -> int:
    """Return a new file without a name, which nobody has to remove."""
    flags = os.O_RDWR | os.O_CLOEXEC
    try:
        return os.open(directory, flags | os.O_TMPFILE, 0o600)
    except OSError as error:
        if error.errno not in {errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL}:
            raise
    path = os.path.join(directory, f".dsup-doctor-{os.urandom(4).hex()}")
    fd = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o600)
    os.unlink(path)
    return fd


def _kind(path: str, root: str) -> str:
    """Return the type of the file system that a path lies on, by its device."""
    device = os.stat(path).st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    for line in read_text(f"{root}/proc/self/mountinfo").splitlines():
        ours, _, theirs = line.partition(" - ")
        if ours.split(" ")[2:3] == [wanted]:
            return theirs.split(" ")[_TYPE_FIELD]
    return ""


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
