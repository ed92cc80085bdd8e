"""Files that somebody else wrote: regular ones only, and no link below the top."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from typing import Final

_SAFE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_DEPTH_MAX: Final = 32
_TOP: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class Opened:
    """A regular file as a descriptor, for the length of a ``with``.

    Args:
        top: a directory; may itself be reached through links.
        name: a path below it, no part of which may be a link.

    Raises:
        OSError: it cannot be read, or is a link, a FIFO or a device.
    """

    def __init__(self, top: str, name: str) -> None:
        self._fd = _open_below(top, name, _SAFE)

    def __enter__(self) -> int:
        """Return its descriptor."""
        if not stat.S_ISREG(os.fstat(self._fd).st_mode):
            self.__exit__()
            raise OSError(0, "not a regular file")
        return self._fd

    def __exit__(self, *_: object) -> None:
        """Close it."""
        os.close(self._fd)


def read_below(top: str, name: str, most: int) -> bytes:
    """Return the first bytes of a regular file below a directory.

    Raises:
        OSError: it cannot be read, or a part of its path is no directory or file.
    """
    with Opened(top, name) as fd:
        return os.pread(fd, most, 0)


def read_file(path: str, most: int) -> bytes:
    """Return a regular file's first bytes.

    Raises:
        OSError: it cannot be read, or is a link, a FIFO or a device.
    """
    top, name = os.path.split(path)
    return read_below(top or ".", name, most)


def read_whole(path: str, most: int) -> bytes | None:
    """Return what is in a regular file, links followed; None where it is longer.

    Raises:
        OSError: it cannot be read, or is no regular file.
    """
    fd = os.open(path, _SAFE & ~os.O_NOFOLLOW)
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(0, "not a regular file")
        return os.pread(fd, most, 0) if found.st_size <= most else None
    finally:
        os.close(fd)


def is_directory(top: str, name: str) -> bool:
    """Return whether there is a directory below another, no link on the way."""
    try:
        os.close(_open_below(top, name, _SAFE | os.O_DIRECTORY))
    except OSError:
        return False
    return True


def files_below(top: str, name: str = "") -> Iterator[tuple[str, os.stat_result]]:
    """Yield the regular files below a directory, by name, links left out.

    What cannot be read is passed over, and so is what lies too deep.
    """
    if name.count("/") >= _DEPTH_MAX:
        return
    try:
        entries = sorted(os.scandir(os.path.join(top, name)), key=lambda e: e.name)
    except OSError:
        return
    for entry in entries:
        below = os.path.join(name, entry.name)
        try:
            found = entry.stat(follow_symlinks=False)
        except OSError:
            continue
        if stat.S_ISDIR(found.st_mode):
            yield from files_below(top, below)
        elif stat.S_ISREG(found.st_mode):
            yield below, found


def _open_below(top: str, name: str, flags: int) -> int:
    *parents, last = name.split("/")
    at = os.open(top, _TOP)
    try:
        for parent in parents:
            inner = os.open(parent, _SAFE | os.O_DIRECTORY, dir_fd=at)
            os.close(at)
            at = inner
        return os.open(last, flags, dir_fd=at)
    finally:
        os.close(at)


def tail_below(top: str, below: str, most: int) -> bytes:
    """Return the last bytes of a file below a directory; none if it cannot be read."""
    try:
        with Opened(top, below) as fd:
            start = max(0, os.fstat(fd).st_size - most)
            return os.pread(fd, most, start)
    except OSError:
        return b""
