"""The error file of an outer launcher: which failure dsup hands on when it gives up.

A launcher that runs under another one finds TORCHELASTIC_ERROR_FILE in its own
environment. As torchrun does, dsup puts there what the first rank wrote into its
error.json, with the exit code added. Where that rank wrote none, or nothing that torch
could read, dsup tells its own verdict in the same form; torchrun would leave nothing,
or break off.

Source: torch/distributed/elastic/multiprocessing/errors, ``dump_error_file`` and
``ProcessFailure``.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from typing import Final

FILE_MAX_BYTES: Final = 1 << 20
TIMESTAMP_MAX: Final = 253_402_214_400
"""Last day of the year 9999, seconds since the epoch: torch prints it as a date."""

_OPEN: Final = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_TEXT_MAX_CHARS: Final = 64 * 1024


def work(first_error_file: str, target: str, fallback: bytes, code: int) -> bytes:
    """Write the outer error file; in an aide, since either file system may hang.

    The target appears whole or not at all, and only where there was nothing or a
    regular file: a device or a pipe is not replaced, nor is a link followed.

    Args:
        first_error_file: error.json of the first rank; empty for none.
        target: TORCHELASTIC_ERROR_FILE of dsup's own environment.
        fallback: what to write where the rank's file says nothing; empty for nothing.
        code: the first rank's exit code, or minus the signal number.

    Returns:
        ``copied``, ``told`` for the fallback, ``nothing``, or why it cannot be written.
    """
    try:
        handed_on = _handed_on(first_error_file, code)
        content = handed_on or fallback
        if not content:
            return b"nothing"
        _write(target, content)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        return f"cannot write {target}, because {reason}".encode(errors="replace")
    return b"copied" if handed_on else b"told"


def fallback(summary: str, rank: int, code: int, wall_s: float) -> bytes:
    """Return an error file that tells a verdict.

    Args:
        summary: the verdict in a sentence or some lines.
        rank: the first rank.
        code: its exit code, or minus the signal number.
        wall_s: when it began, CLOCK_REALTIME, seconds.
    """
    import json

    told = summary[:_TEXT_MAX_CHARS]
    at_s = int(max(0.0, min(wall_s, TIMESTAMP_MAX)))
    # torch shows the call stack where there is one, and has it in every file.
    extra = {"py_callstack": told, "timestamp": str(at_s), "rank": str(rank)}
    message = {"message": told, "extraInfo": extra, "errorCode": code}
    return json.dumps({"message": message}).encode()


def _handed_on(path: str, code: int) -> bytes:
    """Return what torchrun would make of a rank's error file; empty for nothing."""
    import json

    content = _read(path) if path else b""
    try:
        told = json.loads(content)
        if not _is_readable(told):
            return b""
        if code and isinstance(told["message"], dict):
            told["message"]["errorCode"] = code
        return json.dumps(told).encode()
    except (RecursionError, ValueError):
        return b""


def _read(path: str) -> bytes:
    """Return a regular file of at most 1 MiB; nothing if it is not that."""
    with contextlib.suppress(OSError):
        if not stat.S_ISREG(os.lstat(path).st_mode):  # opening a device may do a lot
            return b""
        with open(os.open(path, os.O_RDONLY | _OPEN), "rb") as file:
            if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                content = file.read(FILE_MAX_BYTES + 1)
                return content if len(content) <= FILE_MAX_BYTES else b""
    return b""


def _is_readable(told: object) -> bool:
    """Return whether torch can read an error file: it breaks off at any other."""
    if not isinstance(told, dict):
        return False
    match told.get("message"):
        case str():
            return _is_timestamp(told.get("timestamp", 0))
        case {"extraInfo": dict() as extra, **message}:
            stack = extra.get("py_callstack", message.get("message", ""))
            return isinstance(stack, str) and _is_timestamp(extra.get("timestamp"))
        case _:
            return False


def _is_timestamp(told: object) -> bool:
    try:
        seconds = int(told) if isinstance(told, int | float | str) else -1
    except (OverflowError, ValueError):
        return False
    return 0 <= seconds <= TIMESTAMP_MAX


def _write(target: str, content: bytes) -> None:
    """Put a file in place.

    Raises:
        OSError: if it cannot be written, or if something else is there.
    """
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISREG(os.lstat(target).st_mode):
            raise OSError(errno.EEXIST, "something is there that is no regular file")
    directory, name = os.path.split(target)
    unfinished = os.path.join(directory, f".{name[:200]}.{os.getpid()}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _OPEN
    with open(os.open(unfinished, flags, 0o644), "wb") as file:
        try:
            file.write(content)
            file.flush()
            os.rename(unfinished, target)
        except OSError:
            os.unlink(unfinished)
            raise
