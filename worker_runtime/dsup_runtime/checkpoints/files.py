"""The files of a checkpoint: which there are, how long they are, and their sums.

Nothing in a checkpoint is trusted: only regular files and directories belong to one,
links are never followed, and what is read into memory at once is capped.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
import zlib
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from dsup_runtime.disk import strerror, sync_directory
from dsup_runtime.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Entry: TypeAlias = dict[str, Any]
"""What a manifest says about one file: its ``name``, ``bytes``, and its checksum."""

CHECKSUMS: Final = ("crc32", "sha256", "none")
JSON_MAX_BYTES: Final = 16 << 20
"""Longest file of dsup's own in a checkpoint: no longer one is written or read."""

DEPTH_MAX: Final = 100
"""So many directories may lie in each other below that of a checkpoint."""

_CHUNK_BYTES: Final = 1 << 20
_READ_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_MORE_SPACE: Final = "free some space or keep fewer checkpoints"
_OTHER_PLACE: Final = "choose a directory that the job can write"
_ADVICE: Final = {errno.ENOSPC: _MORE_SPACE, errno.EDQUOT: _MORE_SPACE}


class Storage(NamedTuple):
    """How a checkpoint gets onto a store.

    Attributes:
        checksum: one of CHECKSUMS.
        fsync: whether everything is flushed, so that it survives a power loss.
        rename: whether a rename publishes a checkpoint; else its manifest does, which
            is written last (stores without an atomic rename).
    """

    checksum: str = "crc32"
    fsync: bool = True
    rename: bool = True


DEFAULT: Final = Storage()


@contextlib.contextmanager
def explained(task: str) -> Iterator[None]:
    """Turn an OSError in a block into a CheckpointError: cannot TASK, because."""
    try:
        yield
    except OSError as error:
        advice = _ADVICE.get(error.errno or 0, _OTHER_PLACE)
        message = f"cannot {task}, because {strerror(error)} ({advice})"
        raise CheckpointError(message) from error


def tree(folder: str, prefix: str = "") -> Iterator[str]:
    """Yield the names of all files below a directory, relative to it, in order.

    Raises:
        CheckpointError: at anything that is neither a file nor a directory, and at
            what lies too deep.
        OSError: if a directory cannot be read.
    """
    if prefix.count("/") > DEPTH_MAX:
        message = (
            f"cannot commit {folder}, because {prefix[:100]}... lies deeper than"
            f" {DEPTH_MAX} directories (write a flatter tree)"
        )
        raise CheckpointError(message)
    with os.scandir(os.path.join(folder, prefix)) as entries:
        ordered = sorted(entries, key=lambda entry: entry.name)
    for entry in ordered:
        if entry.is_dir(follow_symlinks=False):
            yield from tree(folder, f"{prefix}{entry.name}/")
        elif entry.is_file(follow_symlinks=False):
            yield prefix + entry.name
        else:
            message = (
                f"cannot commit {folder}, because {prefix}{entry.name} is no file or"
                " directory (a checkpoint holds nothing else)"
            )
            raise CheckpointError(message)


def sync_tree(folder: str) -> None:
    """Flush the entries of a directory and of all below it, the deepest first."""
    for path, _, _ in os.walk(folder, topdown=False):
        sync_directory(path)


def describe(folder: str, name: str, storage: Storage) -> Entry:
    """Flush a file and return what a manifest says about it."""
    path = os.path.join(folder, name)
    if storage.checksum == "none":
        with open(os.open(path, _READ_FLAGS), "rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            if storage.fsync:
                os.fsync(file.fileno())
        return {"name": name, "bytes": size}
    size, digest = read_through(path, storage.checksum, fsync=storage.fsync)
    return {"name": name, "bytes": size, storage.checksum: digest}


def read_through(path: str, checksum: str, *, fsync: bool = False) -> tuple[int, str]:
    """Return a file's size, bytes, and its checksum, as they read now."""
    size = 0
    update, digest = _summing(checksum)
    chunk = memoryview(bytearray(_CHUNK_BYTES))
    with open(os.open(path, _READ_FLAGS), "rb", buffering=0) as file:
        if fsync:
            os.fsync(file.fileno())
        while count := file.readinto(chunk):
            size += count
            update(chunk[:count])
    return size, digest()


def read_capped(path: str) -> bytes:
    """Return what a small file that another process wrote holds."""
    with open(os.open(path, _READ_FLAGS), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", path)
        data = file.read(JSON_MAX_BYTES + 1)
    if len(data) > JSON_MAX_BYTES:
        raise OSError(errno.EFBIG, f"larger than {JSON_MAX_BYTES} bytes", path)
    return data


def packed(value: object, *, task: str, what: str) -> bytes:
    """Return something as JSON that ``read_capped`` and a reader will take back.

    Args:
        value: it.
        task: what it is needed for: cannot TASK, because.
        what: what in it may be the trouble.

    Raises:
        CheckpointError: if JSON cannot hold it, or it is too large.
    """
    try:
        data = json.dumps(value, allow_nan=False, indent=1).encode()
    except (TypeError, ValueError, RecursionError) as error:
        message = f"cannot {task}, because JSON cannot hold its {what}: {error}"
        raise CheckpointError(message) from error
    if len(data) > JSON_MAX_BYTES:
        raise CheckpointError(
            f"cannot {task}, because with its {what} it has {len(data)} bytes of JSON"
            f" and {JSON_MAX_BYTES} are the most that is read (write them to a file of"
            " the state)"
        )
    return data


def _summing(
    checksum: str,
) -> tuple[Callable[[memoryview], object], Callable[[], str]]:
    """Return what takes the bytes of a file, and what then says their sum."""
    if checksum == "sha256":
        import hashlib

        digest = hashlib.sha256()
        return digest.update, digest.hexdigest
    crc = 0

    def update(chunk: memoryview) -> None:
        nonlocal crc
        crc = zlib.crc32(chunk, crc)

    return update, lambda: f"{crc:08x}"
