"""Files that a user names for what dsup makes: whole or not at all, and his alone."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from typing import IO, Final

from dsup.core.errors import DsupError, SpecError

_NEW: Final = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class CannotWriteError(DsupError):
    """A file could not be written."""

    exit_code = 1


@contextlib.contextmanager
def replacing(path: str, what: str) -> Iterator[IO[bytes]]:
    """Give a file that takes a name once it is whole; a failure leaves what was there.

    A link of that name is replaced, and what it leads to is left alone.

    Args:
        path: the name.
        what: it is, for the refusal: ``the report``.

    Raises:
        SpecError: it is the name of something that is no file, or of nothing at all.
        CannotWriteError: it cannot be written.
    """
    _check(path, what)
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


def _check(path: str, what: str) -> None:
    try:
        found = os.lstat(path)
    except FileNotFoundError:
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
