"""Where ``dsup kernel-log`` reads from, and how it refuses what is no log."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from typing import Final

from dsup.core.errors import DsupError, SpecError
from dsup.facts.kernel_text import LINE_MAX_BYTES, SavedLog

CANNOT_READ: Final = 1
KMSG: Final = "/dev/kmsg"
JOURNAL_S: Final = 10.0
"""How long journald may take; it reads from disk."""

_STANDARD_INPUT: Final = "-"
_SPAN: Final = re.compile(r"(\d{1,9})([smhd]?)")
_UNITS_S: Final = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}
_LINES_AT_ONCE: Final = 256
_HEAD_BYTES: Final = 4096
_CONTROLS_MAX: Final = 0.1
"""A share of control characters above which it is no text."""

_PACKED: Final = (
    (b"\x1f\x8b", "gzip", "zcat"),
    (b"\xfd7zXZ", "xz", "xzcat"),
    (b"\x28\xb5\x2f\xfd", "zstd", "zstdcat"),
    (b"BZh", "bzip2", "bzcat"),
)
_JOURNAL: Final = b"LPKSHHRH"
_PLAIN: Final = frozenset({*range(0x20, 0x7F), *range(0x80, 0x100), *b"\t\n\r\f\x1b"})


class UnreadableLogError(DsupError):
    """A log cannot be read."""

    exit_code = CANNOT_READ


def check(file: str, *, live: bool) -> None:
    """Refuse a call that asks for no log, or for two.

    Raises:
        SpecError: if it does.
    """
    if live and file:
        raise SpecError(
            f"cannot read {file} with --live, because --live is a log of its own "
            "(drop one of them)"
        )
    if not live and not file:
        raise SpecError(
            "cannot print faults, because no log was named (name a FILE, - or --live)"
        )


def span_us(since: str) -> int | None:
    """Return how far back ``--since`` looks, microseconds; None without it.

    Raises:
        SpecError: if it is no time.
    """
    if not since:
        return None
    found = _SPAN.fullmatch(since)
    if not found:
        raise SpecError(
            f"cannot use --since {since}, because it is no time (such as 90, 10m or 2h)"
        )
    return int(found[1]) * _UNITS_S[found[2]] * 1_000_000


def saved(path: str) -> SavedLog:
    """Return what a file, or standard input, tells.

    Raises:
        UnreadableLogError: if it cannot be read, or is no text.
    """
    log = SavedLog()
    try:
        for lines in _lines(path):
            log.take_all(lines)
    except OSError as error:
        reason = str(error.strerror or error).lower()
        raise UnreadableLogError(
            f"cannot read {path}, because of this error: {reason} (see ls -ld {path})"
        ) from None
    return log


def live(path: str = KMSG, journal: str = "journalctl") -> SavedLog:
    """Return what this machine's kernel tells: its own log, else journald's copy.

    Args:
        path: where the log is.
        journal: what prints journald's copy.

    Raises:
        UnreadableLogError: if neither can be read.
    """
    from dsup.edges import kernel_log

    log = SavedLog()
    error = kernel_log.replay(log.take, path)
    if not error:
        return log
    lines, complaint = kernel_log.from_journal(0, JOURNAL_S, journal)
    if complaint:
        raise UnreadableLogError(f"{error}; and {complaint}")
    for line in lines:
        log.take(line.encode())
    return log


def _lines(path: str) -> Iterator[list[bytes]]:
    """Give the lines of a log, many at a time; of a long one its beginning."""
    if path == _STANDARD_INPUT:
        fd = os.dup(0)
    else:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
        mode = os.fstat(fd).st_mode
        if stat.S_ISDIR(mode):
            os.close(fd)
            raise UnreadableLogError(
                f"cannot read {path}, because it is a directory (name a file in it)"
            )
        os.set_blocking(fd, stat.S_ISFIFO(mode))
    with os.fdopen(fd, "rb") as stream:
        head = stream.peek(_HEAD_BYTES)[:_HEAD_BYTES]
        _refuse(path, head)
        whole, lines = True, list[bytes]()
        while line := stream.readline(LINE_MAX_BYTES):
            if whole:
                lines.append(line)
            whole = line.endswith(b"\n")
            if len(lines) >= _LINES_AT_ONCE:
                yield lines
                lines = []
        yield lines


def _refuse(path: str, head: bytes) -> None:
    """Refuse what is no text, and say how to make one of it."""
    name = "standard input" if path == _STANDARD_INPUT else path
    if not head:
        raise UnreadableLogError(
            f"cannot read {name}, because it is empty (give a kernel log: dmesg)"
        )
    if head.startswith(_JOURNAL):
        raise UnreadableLogError(
            f"cannot read {name}, because it is a journal "
            f"(journalctl -k --file {name} -o json | dsup kernel-log -)"
        )
    for magic, kind, program in _PACKED:
        if head.startswith(magic):
            raise UnreadableLogError(
                f"cannot read {name}, because it is packed with {kind} "
                f"({program} {name} | dsup kernel-log -)"
            )
    odd = sum(byte not in _PLAIN for byte in head)
    if odd > _CONTROLS_MAX * len(head):
        raise UnreadableLogError(
            f"cannot read {name}, because it is binary (give a kernel log: dmesg)"
        )
