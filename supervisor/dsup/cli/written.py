"""Files that a user names for what dsup makes: whole or not at all, and his alone."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Iterator
from typing import IO, Final

from dsup.core.errors import DsupError, SpecError

BEGINNING_BYTES: Final = 4096

_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW: Final = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class CannotWriteError(DsupError):
    """A file could not be written."""

    exit_code = 1


@contextlib.contextmanager
def replacing(
    path: str, what: str, is_ours: Callable[[bytes], bool]
) -> Iterator[IO[bytes]]:
    """Give a file that takes a name once it is whole; a failure leaves what was there.

    A link of that name is replaced, and what it leads to is left alone. A file is only
    replaced by one of its kind: a name given in the wrong place must not cost a log.

    Args:
        path: the name.
        what: it is, for the refusal: ``the report``.
        is_ours: tells by how a file begins whether dsup may have made it.

    Raises:
        SpecError: it is the name of something that is no file, of another file, or
            below no directory.
        CannotWriteError: it cannot be written.
    """
    _check(path, what, is_ours)
    draft = f"{path}.tmp-{os.getpid()}"
    try:
        with os.fdopen(os.open(draft, _NEW, 0o600), "w+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.rename(draft, path)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise CannotWriteError(
            f"cannot write {what} to {path}, because of: {reason} (name another place)"
        ) from None
    finally:
        with contextlib.suppress(OSError):
            os.unlink(draft)


def _check(path: str, what: str, is_ours: Callable[[bytes], bool]) -> None:
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        _check_directory(path, what)
        return
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise SpecError(
            f"cannot write {what} to {path}, because of: {reason}"
        ) from None
    if not (stat.S_ISREG(found.st_mode) or stat.S_ISLNK(found.st_mode)):
        kind = "a directory" if stat.S_ISDIR(found.st_mode) else "no regular file"
        raise SpecError(
            f"cannot write {what} to {path}, because it is {kind} (name a file)"
        )
    if stat.S_ISREG(found.st_mode) and not is_ours(_beginning(path)):
        raise SpecError(
            f"cannot write {what} to {path}, because that file is there already and "
            "dsup did not make it (name a new file)"
        )


def _check_directory(path: str, what: str) -> None:
    parent = os.path.dirname(path) or "."
    if not os.path.isdir(parent) or path.endswith("/"):
        raise SpecError(
            f"cannot write {what} to {path}, because there is no directory {parent} "
            "(name another place)"
        )


def _beginning(path: str) -> bytes:
    """Return how a file begins; nothing of one that cannot be read."""
    try:
        with os.fdopen(os.open(path, _READ), "rb") as file:
            return file.read(BEGINNING_BYTES)
    except OSError:
        return b"?"
