"""Ranks' logs on the way to a terminal or a pipe: whole lines, behind their rank."""

from __future__ import annotations

import os
import time
from typing import Final, NamedTuple

from dsup.cli.log_stream import LogStream, Source
from dsup.edges.scribe import text
from dsup.edges.scribe.view import Look, View

LINE_MAX_BYTES: Final = 64 * 1024
"""A longer line is shown in pieces."""

_COLOURS: Final = (36, 35, 34, 32, 96, 95, 94, 92)
_OFF: Final = b"\x1b[0m"
_DIM: Final = b"\x1b[2m"


class Style(NamedTuple):
    """How lines look.

    Attributes:
        named: each begins with its rank.
        raw: bytes are passed on as they are.
        colour: colours are shown.
    """

    named: bool = True
    raw: bool = False
    colour: bool = False


class Paper:
    """Descriptor 1, written to until its reader has had enough.

    A line of one rank that is not finished is ended before another's.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._open: object = None

    def add(self, owner: object, block: bytes) -> None:
        """Write whole lines, or a piece of one.

        Raises:
            OSError: nobody reads them any more, or the disk is full.
        """
        if not block:
            return
        if self._open not in (None, owner):
            block = b"\n" + block
        self._open = None if block.endswith(b"\n") else owner
        left = memoryview(block)
        while left:
            left = left[os.write(self._fd, left) :]

    def continues(self, owner: object) -> bool:
        """Return whether what was written ends inside a line of this owner's."""
        return self._open is owner

    def say(self, line: str, style: Style) -> None:
        """Write a line of dsup's own."""
        said = f"dsup: {line}".encode()
        self.add(self, (_DIM + said + _OFF if style.colour else said) + b"\n")

    def end(self) -> None:
        """End the last line."""
        if self._open is not None:
            self.add(None, b"")
            os.write(self._fd, b"\n")
            self._open = None


class Lines:
    """One stream's bytes as lines.

    Args:
        stream: where they come from.
        paper: where they go.
        style: how they look.
    """

    def __init__(self, stream: LogStream, paper: Paper, style: Style) -> None:
        self.stream = stream
        self._paper = paper
        self._raw = style.raw
        self._rest = b""
        self._lead = _lead(stream.source, style) if style.named else b""
        look = Look(self._lead, None, style.colour)
        self._view = View(paper, look, time.monotonic)

    def take(self, block: bytes, skip: int = 0) -> int:
        """Show a block; return how many lines are still to be passed over.

        Args:
            block: what was read.
            skip: so many lines are passed over.
        """
        block = self._rest + block
        end = block.rfind(b"\n") + 1
        lines, self._rest = block[:end], block[end:]
        while skip and lines:
            lines = lines[lines.find(b"\n") + 1 :]
            skip -= 1
        if lines:
            self._show(lines)
        self._hold()
        return skip

    def tick(self) -> None:
        """Show what has been unfinished for long enough."""
        if not self._raw and time.monotonic() >= self._view.due_s:
            self._view.tick()

    def end(self) -> None:
        """Show what stays unfinished."""
        if self._raw:
            self._show(self._rest)
        else:
            self._view.end()
        self._rest = b""

    def _hold(self) -> None:
        if b"\r" in self._rest and not self._raw:
            self._rest = text.last_state(self._rest)
        if len(self._rest) >= LINE_MAX_BYTES:
            end = text.whole_characters(self._rest)
            piece, self._rest = self._rest[:end], self._rest[end:]
            self._show(piece)
        if not self._raw:
            self._view.rest(self._rest)

    def _show(self, block: bytes) -> None:
        if not self._raw:
            self._view.lines(block)
            return
        begins = not self._paper.continues(self)
        self._paper.add(self, text.lead(block, self._lead, begins=begins))


def _lead(source: Source, style: Style) -> bytes:
    lead = b"[rank %d] " % source.rank
    if not style.colour or style.raw:
        return lead
    return b"\x1b[%dm" % _COLOURS[source.rank % len(_COLOURS)] + lead + _OFF
