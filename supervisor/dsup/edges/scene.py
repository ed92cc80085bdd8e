"""The scene of a failure, as far as file systems tell: free space, and error.json.

It is looked at in an aide, since each of these file systems may hang. Each is asked by
a thread of its own: what has not answered when the time is up is named, and the others
are told. (The thread that hangs keeps the aide from ending, not from answering.)
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from dsup.core.printable import printable

if TYPE_CHECKING:
    from dsup.attribution.timeline import Space

FILE_MAX_BYTES: Final = 16_384
"""Larger error files are left out: JSON that was cut says nothing."""

ANSWER_MAX_BYTES: Final = 65_000
"""Below what an aide may answer."""

LIMIT_S: Final = 1.0

_ERROR_FILES: Final = "error files"
_PATH_MAX_CHARS: Final = 256


class Scene(NamedTuple):
    """What was found.

    Attributes:
        spaces: of the places that exist; of two with the same space, the first.
        error_files: content of error.json by rank, as it was.
        silent: places whose file system did not answer, and ``error files``.
    """

    spaces: tuple[Space, ...] = ()
    error_files: Mapping[int, bytes] = {}
    silent: tuple[str, ...] = ()


class _Found(NamedTuple):
    """An error file, and when it was last written."""

    mtime_ns: int
    rank: int
    content: bytes


_Identity: TypeAlias = tuple[int, int, int]
_Row: TypeAlias = tuple[str, str, int, int, int | None]


def look(
    places: Mapping[str, str], error_files: Mapping[int, str], limit_s: float = LIMIT_S
) -> bytes:
    """Look at file systems and error files; in an aide.

    An error file must be a regular file that may be read, of at most 16 KiB; anything
    else is left out. The answer holds them compressed, those with the earliest mtime
    first, until it is full: three of any content always fit, of common tracebacks some
    tens. The others are left out.

    Args:
        places: path by name, the most important first.
        error_files: path of error.json by rank.
        limit_s: what has not answered by then is named, seconds.

    Returns:
        For ``decode``.
    """
    import json

    rows: dict[str, tuple[_Identity, _Row]] = {}
    files: list[_Found] = []

    def measure(name: str, path: str) -> None:
        rows[name] = _space(name, path)

    def read(paths: Mapping[int, str]) -> None:
        files.extend(_error_files(paths))

    jobs = {name: partial(measure, name, path) for name, path in places.items()}
    silent = _do(jobs | {_ERROR_FILES: partial(read, error_files)}, limit_s)
    head = [_distinct([rows[name] for name in places if name in rows]), silent]
    room = ANSWER_MAX_BYTES - len(json.dumps(head))
    return json.dumps([*head, _packed(tuple(files), room)]).encode()


def decode(answer: bytes) -> Scene:
    """Return an aide's answer; an empty scene where it is none."""
    import json
    import zlib
    from base64 import b85decode

    from dsup.attribution.timeline import Space

    try:
        rows, silent, files = json.loads(answer)
        spaces = tuple(Space(*row) for row in rows)
        contents = {
            int(rank): zlib.decompressobj().decompress(b85decode(text), FILE_MAX_BYTES)
            for rank, text in files.items()
        }
    except (AttributeError, TypeError, ValueError, zlib.error):
        return Scene()
    return Scene(spaces, contents, tuple(silent))


def _do(jobs: Mapping[str, Callable[[], None]], limit_s: float) -> list[str]:
    """Do everything at once; return the names of what was not done in time."""
    import threading

    until_s = time.monotonic() + limit_s
    threads = {}
    for name, job in jobs.items():
        quiet = partial(_quietly, job)
        thread = threading.Thread(target=quiet, daemon=True)
        try:
            thread.start()
        except RuntimeError:
            quiet()  # no thread can be made, which may well be why a rank failed
        else:
            threads[name] = thread
    for thread in threads.values():
        thread.join(max(0.0, until_s - time.monotonic()))
    return [name for name, thread in threads.items() if thread.is_alive()]


def _quietly(job: Callable[[], None]) -> None:
    with contextlib.suppress(OSError):
        job()


def _space(name: str, path: str) -> tuple[_Identity, _Row]:
    """Return what tells a place's space from others', and how full it is.

    A quota of a directory shows as a size of its own on the same device.

    Raises:
        OSError: if the place is not there, or has no limited size.
    """
    found = os.statvfs(path)
    if not found.f_blocks:
        raise OSError(errno.ENODATA, os.strerror(errno.ENODATA), path)
    free, total = found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize
    inodes = found.f_favail if found.f_files else None
    shown = printable(path)[:_PATH_MAX_CHARS]
    identity = os.stat(path).st_dev, found.f_blocks, found.f_files
    return identity, (name, shown, free, total, inodes)


def _distinct(found: list[tuple[_Identity, _Row]]) -> list[_Row]:
    """Return the rows, of those with the same space the first."""
    rows: dict[_Identity, _Row] = {}
    for identity, row in found:
        rows.setdefault(identity, row)
    return list(rows.values())


def _error_files(paths: Mapping[int, str]) -> list[_Found]:
    found = []
    for rank, path in paths.items():
        with contextlib.suppress(OSError):
            mtime_ns, content = _read(path)
            if 0 < len(content) <= FILE_MAX_BYTES:
                found.append(_Found(mtime_ns, rank, content))
    return found


def _read(path: str) -> tuple[int, bytes]:
    """Return when a regular file was written, and its beginning; else nothing.

    Raises:
        OSError: if it is not there, or may not be read.
    """
    if not stat.S_ISREG(os.lstat(path).st_mode):  # to open a device may do something
        return 0, b""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        info = os.fstat(fd)
        if not stat.S_ISREG(info.st_mode) or info.st_size > FILE_MAX_BYTES:
            return 0, b""
        return info.st_mtime_ns, os.read(fd, FILE_MAX_BYTES + 1)
    finally:
        os.close(fd)


def _packed(files: Iterable[_Found], room: int) -> dict[int, str]:
    """Return as many files as there is room for in JSON, the earliest first."""
    import zlib
    from base64 import b85encode

    packed = {}
    for file in sorted(files):
        text = b85encode(zlib.compress(file.content)).decode()
        room -= len(f', "{file.rank}": "{text}"')
        if room < 0:
            break
        packed[file.rank] = text
    return packed
