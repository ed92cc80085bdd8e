"""Writing and removing on a disk, down to the platter and in one step."""

from __future__ import annotations

import contextlib
import errno
import os
from typing import Final

_WRITE_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_NO_DIRECTORY_FSYNC: Final = (errno.EINVAL, errno.ENOTSUP)


def write_new(path: str, data: bytes, *, fsync: bool = True) -> None:
    """Write a file that must not exist yet, down to the disk unless told otherwise."""
    with open(os.open(path, _WRITE_FLAGS, 0o666), "wb") as file:
        file.write(data)
        file.flush()
        if fsync:
            os.fsync(file.fileno())


def sync_directory(path: str) -> None:
    """Flush a directory's entries, where the file system can do that."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno not in _NO_DIRECTORY_FSYNC:
            raise
    finally:
        os.close(fd)


def strerror(error: OSError) -> str:
    """Return the system's words for an error, as part of a sentence."""
    words = error.strerror or str(error)
    return words[:1].lower() + words[1:]


def move_to_trash(path: str) -> str:
    """Take a path out of sight in one rename, so that no reader sees half of it."""
    home, name = os.path.split(path)
    trash = os.path.join(home, f".trash-{name.lstrip('.')}-{os.urandom(4).hex()}")
    os.rename(path, trash)
    return trash


def discard(path: str) -> None:
    """Take a path out of sight, then delete what can be deleted of it."""
    trash = move_to_trash(path)
    with contextlib.suppress(OSError):
        remove(trash)


def remove(path: str) -> None:
    """Delete a file, a link or a tree; links inside are deleted, not followed."""
    if os.path.islink(path) or not os.path.isdir(path):
        os.unlink(path)
        return
    folders = [path]
    for folder in folders:  # which grows: a tree may be deeper than Python recurses
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                else:
                    os.unlink(entry.path)
    for folder in reversed(folders):
        os.rmdir(folder)
