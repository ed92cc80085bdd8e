"""A directory's file system: room, and how long a small file takes to be safe.

Whoever looks may never come back: each directory has a reader of its own.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Iterable
from typing import Final

from dsup.checkup.readings import Space, Sync
from dsup.core.printable import printable
from dsup.linux.proc import read_text

_WRITTEN_BYTES: Final = 1_048_576
_SYNCS: Final = 3
SLOW_MS: Final = 1_000.0
_THE_JOBS: Final = frozenset(
    {
        errno.EACCES,
        errno.EPERM,
        errno.ENOENT,
        errno.ENOTDIR,
        errno.ELOOP,
        errno.ENAMETOOLONG,
        errno.EDQUOT,
    }
)
"""Another node would say the same."""

_OF_THE_LOOK: Final = frozenset(
    {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EINTR, errno.EAGAIN}
)
_PATH_MAX_CHARS: Final = 256
_OPTIONS: Final = 5


def space(path: str, root: str = "", *, writes: bool = True) -> Space:
    """Return what there is to know of a directory; nothing is left in it.

    Args:
        path: the directory, which need not exist yet.
        root: stands for ``/`` where the table of mounts is read.
        writes: try whether a file can be made.
    """
    shown = printable(path)[:_PATH_MAX_CHARS]
    there = _nearest(os.path.abspath(path))
    row = Space(shown, printable(there)[:_PATH_MAX_CHARS])
    try:
        if not stat.S_ISDIR(os.stat(there).st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        room = os.statvfs(there)
    except OSError as error:
        return row._replace(error=_reason(error), whose=_whose(error, broken=False))
    kind, broken = _mount(there, root)
    row = row._replace(
        kind=kind,
        free=room.f_bavail * room.f_frsize if room.f_blocks else None,
        total=room.f_blocks * room.f_frsize,
        inodes=room.f_favail if room.f_files else None,
        inodes_total=room.f_files or None,
    )
    if not writes:
        return row
    try:
        os.close(_unnamed(there))
    except OSError as error:
        return row._replace(error=_reason(error), whose=_whose(error, broken=broken))
    return row


def sync(path: str) -> Sync:
    """Return what a small file takes to be safe on disk; nothing is left there.

    Args:
        path: a directory, which need not exist yet.
    """
    there = _nearest(os.path.abspath(path))
    try:
        fd = _unnamed(there)
        try:
            return Sync(middle(_one_sync_ms(fd) for _ in range(_SYNCS)))
        finally:
            os.close(fd)
    except OSError as error:
        return Sync(None, _reason(error), _whose(error, broken=False))


def middle(times_ms: Iterable[float]) -> float:
    """Return the middle time of some, or the first that is slow: more would cost too.

    Args:
        times_ms: what each took; taken one by one.
    """
    taken: list[float] = []
    for took_ms in times_ms:
        if took_ms > SLOW_MS:
            return took_ms
        taken.append(took_ms)
    return sorted(taken)[len(taken) // 2]


def _nearest(path: str) -> str:
    """Return a path, or the nearest one above it that there is."""
    while not os.path.exists(path) and os.path.dirname(path) != path:
        path = os.path.dirname(path)
    return path


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


def _mount(path: str, root: str) -> tuple[str, bool]:
    """Return the type of the file system that a path lies on, by its device.

    And whether the kernel has made it read-only, which nobody mounted so: it does that
    after errors.
    """
    device = os.stat(path).st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    for line in read_text(f"{root}/proc/self/mountinfo").splitlines():
        ours, _, theirs = line.partition(" - ")
        mount, system = ours.split(" "), theirs.split(" ")
        if mount[2:3] == [wanted] and len(mount) > _OPTIONS:
            ours_rw = "rw" in mount[_OPTIONS].split(",")
            return system[0], ours_rw and "ro" in system[-1].split(",")
    return "", False


def _whose(error: OSError, *, broken: bool) -> str:
    if error.errno in _OF_THE_LOOK:
        return "nobody"
    if error.errno in _THE_JOBS or (error.errno == errno.EROFS and not broken):
        return "job"
    return "full" if error.errno == errno.ENOSPC else "node"


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
