"""A stream of a rank in one attempt: its log, and the part before it was rotated."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Final, NamedTuple

from dsup.cli.log_part import Part
from dsup.cli.run_files import UnreadableRunError
from dsup.core.streams import STDERR
from dsup_runtime import contract
from dsup_runtime.contract import ROTATED_SUFFIX

_TRIES: Final = 3


class Source(NamedTuple):
    """Which stream of which rank.

    Attributes:
        which: 1 for stdout, 2 for stderr.
    """

    attempt: int
    rank: int
    which: int

    @property
    def name(self) -> str:
        """Its log, below the run directory."""
        err = self.which == STDERR
        file = contract.STDERR_FILE if err else contract.STDOUT_FILE
        return f"{contract.rank_dir('', self.attempt, self.rank)}/{file}"


class LogStream:
    """What a stream has said and says.

    Args:
        top: the run directory.
        source: which one.

    Raises:
        UnreadableRunError: a log cannot be read.

    Attributes:
        source: which one.
        missed: a part may have been rotated away before it could be read.
    """

    def __init__(self, top: str, source: Source) -> None:
        self.source = source
        self.missed = False
        self._top = top
        self._parts: list[Part] = []
        self._open()

    @property
    def at_ns(self) -> int:
        """When what comes next was read, CLOCK_REALTIME; 0 if that is unknown."""
        return self._parts[0].at_ns

    @property
    def begun(self) -> bool:
        """Whether it has a log."""
        return bool(self._parts)

    @property
    def left(self) -> bool:
        """Whether something is still to come."""
        while self._parts[1:] and not self._parts[0].left:
            self._parts.pop(0).close()
        return bool(self._parts) and self._parts[0].left > 0

    def read(self) -> bytes:
        """Return a block of what was read at one time; empty where nothing is left."""
        return self._parts[0].read() if self.left else b""

    def grow(self) -> None:
        """Look for what has come since, in this file and in those after it."""
        if not self._parts:
            self._open()
        for part in self._parts:
            part.grow()
        if self._parts and self._inode("") not in (None, self._parts[-1].inode):
            self._follow()

    def skip_until(self, at_ns: int) -> None:
        """Pass over what was read before some time."""
        for part in self._parts:
            part.seek(part.since(at_ns))

    def skip_all(self) -> None:
        """Pass over all there is."""
        for part in self._parts:
            part.seek(part.end)

    def keep_last(self, count: int) -> int:
        """Pass over all but the last lines; return how many they are."""
        kept = 0
        for part in reversed(self._parts):
            if kept >= count:
                part.seek(part.end)
                continue
            start, found = part.last_lines(count - kept, part.offset)
            part.seek(start)
            kept += found
        return kept

    def close(self) -> None:
        """Close the files."""
        while self._parts:
            self._parts.pop().close()

    def _open(self) -> None:
        """Open what there is; the log may be given its other name meanwhile."""
        for _ in range(_TRIES):
            newest = self._part("")
            before = self._part(ROTATED_SUFFIX)
            if newest and before and newest.inode == before.inode:
                newest.close()
                before.close()
                continue
            self._parts = [part for part in (before, newest) if part]
            return

    def _follow(self) -> None:
        """Go on with the file that has been begun, and with one in between."""
        old = self._parts[-1]
        old.grow()  # the last that was written to it before it was given up
        between = self._part(ROTATED_SUFFIX)
        if between and between.inode == old.inode:
            between.close()
            between = None
        elif between:
            self.missed = True  # or not: nothing tells how many there were
        newest = self._part("")
        if newest and newest.inode not in (between and between.inode, old.inode):
            self._parts += [part for part in (between, newest) if part]
        else:
            for part in filter(None, (between, newest)):
                part.close()

    def _part(self, suffix: str) -> Part | None:
        try:
            return Part(self._top, self.source.name + suffix)
        except FileNotFoundError:
            return None
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise UnreadableRunError(
                f"cannot read {self.source.name} of {self._top}, because of: {reason}"
            ) from None

    def _inode(self, suffix: str) -> tuple[int, int] | None:
        with suppress(OSError):
            found = os.lstat(os.path.join(self._top, self.source.name + suffix))
            return found.st_dev, found.st_ino
        return None
