"""systemd's journal, told in its own protocol where a standard stream leads to it.

Then each line is an entry with fields, so that one rank's can be asked for. What the
journal does not take at once goes through the stream instead, as it always did.

Source: https://systemd.io/JOURNAL_NATIVE_PROTOCOL/ and JOURNAL_STREAM in
https://www.freedesktop.org/software/systemd/man/latest/systemd.exec.html
"""

from __future__ import annotations

import os
import socket
from math import inf
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from dsup.core.output import Tone

ADDRESS = "/run/systemd/journal/socket"
IDENTIFIER = b"dsup"
LINE_MAX_BYTES = 48 * 1024
"""Longer ones are cut into several, as the journal cuts those of a stream."""

UNFINISHED_S = 1.0
PRIORITIES: dict[Tone, int] = {"plain": 6, "warning": 4, "failure": 3}
OF_RANKS = 6, 5
"""Priorities of stdout and stderr: what a rank says is no error of dsup's."""

STREAMS = b"stdout", b"stderr"

Field = tuple[str, bytes]


def leads_to_journal(fd: int, told: str) -> bool:
    """Return whether a standard descriptor is the one that systemd made.

    Args:
        fd: the descriptor.
        told: $JOURNAL_STREAM, device and inode.
    """
    try:
        found = os.fstat(fd)
    except OSError:
        return False
    return told == f"{found.st_dev}:{found.st_ino}"


class Journald:
    """The way to the journal.

    Args:
        run: name of the run.
        now: monotonic clock, seconds.
        address: its socket.
    """

    def __init__(
        self, run: str, now: Callable[[], float], address: str = ADDRESS
    ) -> None:
        self._run = os.fsencode(run)
        self._now = now
        self._address = address
        kind = socket.SOCK_DGRAM | socket.SOCK_NONBLOCK
        self._socket = socket.socket(socket.AF_UNIX, kind)
        self._pieces: list[Pieces] = []
        self.attempt = 0

    @property
    def due_s(self) -> float:
        """Return when ``turn`` is due; inf for never."""
        return min((pieces.due_s for pieces in self._pieces), default=inf)

    def turn(self) -> None:
        """Send lines that stay unfinished."""
        now_s = self._now()
        for pieces in self._pieces:
            if now_s >= pieces.due_s:
                pieces.flush()

    def finish(self) -> None:
        """Send what is left, and let go."""
        for pieces in self._pieces:
            pieces.flush()
        self._socket.close()

    def open(
        self, attempt: int, local_rank: int, which: int, otherwise: Instead
    ) -> Pieces:
        """Return what takes a rank's stream.

        Args:
            attempt: the rank's.
            local_rank: whose it is.
            which: 0 for stdout, 1 for stderr.
            otherwise: takes the lines that the journal does not.
        """
        self.attempt = max(attempt, self.attempt)
        fields: list[Field] = [
            ("PRIORITY", b"%d" % OF_RANKS[which]),
            ("DSUP_RUN", self._run),
            ("DSUP_ATTEMPT", b"%d" % attempt),
            ("DSUP_RANK", b"%d" % local_rank),
            ("DSUP_STREAM", STREAMS[which]),
        ]
        pieces = Pieces(self, fields, otherwise, self._now)
        self._pieces.append(pieces)
        return pieces

    def say(
        self, line: bytes, tone: Tone, fields: Mapping[str, object] | None = None
    ) -> bool:
        """Send a line of dsup's own; return whether it was taken.

        Args:
            line: what it says.
            tone: how grave it is.
            fields: more about it; a list is a field of several values.
        """
        own: list[Field] = [("DSUP_RUN", self._run)]
        told = {"PRIORITY": PRIORITIES[tone], "DSUP_ATTEMPT": self.attempt}
        for name, value in (told | dict(fields or {})).items():
            values = value if isinstance(value, list) else [value]
            own += [(name, str(one).encode(errors="replace")) for one in values]
        return self.send(line, own)

    def send(self, line: bytes, fields: Iterable[Field]) -> bool:
        """Send an entry; return whether it was taken."""
        rows = (("MESSAGE", line), ("SYSLOG_IDENTIFIER", IDENTIFIER), *fields)
        entry = b"".join(_row(name, value) for name, value in rows)
        try:
            self._socket.sendto(entry, self._address)
        except OSError:
            return False
        return True


class Instead(Protocol):
    """Takes what the journal does not; a console does."""

    def add(self, owner: object, block: bytes) -> None:
        """Show whole lines."""


class Pieces:
    """One stream of a rank, put together to lines."""

    def __init__(
        self,
        journald: Journald,
        fields: list[Field],
        otherwise: Instead,
        now: Callable[[], float],
    ) -> None:
        self.due_s = inf
        self._journald = journald
        self._fields = fields
        self._otherwise = otherwise
        self._now = now
        self._rest = b""

    def add(self, owner: object, block: bytes) -> None:
        """Take a block; each line of it that is whole is an entry.

        Args:
            owner: whose lines these are.
            block: lines, of which the last may be unfinished.
        """
        *lines, rest = (self._rest + block).split(b"\n")
        for line in lines:
            self._send(owner, line)
        self._rest = rest
        self.due_s = self._now() + UNFINISHED_S if rest else inf
        if len(rest) >= LINE_MAX_BYTES:
            self.flush()

    def continues(self, _owner: object) -> bool:
        """Return whether what was taken last is an unfinished line."""
        return bool(self._rest)

    def flush(self) -> None:
        """Send what is unfinished as it is."""
        rest, self._rest, self.due_s = self._rest, b"", inf
        if rest:
            self._send(self, rest)

    def _send(self, owner: object, line: bytes) -> None:
        for at in range(0, len(line) or 1, LINE_MAX_BYTES):
            part = line[at : at + LINE_MAX_BYTES]
            if part.strip() and not self._journald.send(part, self._fields):
                self._otherwise.add(owner, part + b"\n")


def _row(name: str, value: bytes) -> bytes:
    """Return a field; one with a newline is framed by its size."""
    if b"\n" not in value:
        return b"%s=%s\n" % (name.encode(), value)
    return b"%s\n%s%s\n" % (name.encode(), len(value).to_bytes(8, "little"), value)
