"""What a post-mortem needs of an attempt that goes on: on disk before it is needed.

The scribe gets the heartbeat page's memory once, and each sample as it is taken; it
writes both, also when the agent has just been killed. The agent itself pays a message
for each sample: a page that all ranks write into is nobody's to send.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from dsup_runtime import contract

if TYPE_CHECKING:
    from dsup.edges.heartbeats import Page


class Desk(Protocol):
    """What this needs of the recorder."""

    def keep_page(self, attempt: int, fd: int) -> None:
        """Have the page's memory copied to disk until the attempt is closed."""

    def append(self, name: str, lines: bytes) -> None:
        """Append whole lines to a file of the run directory."""

    def save(self, name: str, fd: int, *, keep: bool = False) -> None:
        """Copy a descriptor's content into the run directory."""


class Blackbox:
    """Hands over what is new.

    Args:
        desk: gets it written.
    """

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._count = 0
        self._last = b""

    def started(self, attempt: int, page: Page | None) -> None:
        """Begin with an attempt: its ranks run.

        Args:
            attempt: its number.
            page: its heartbeat page.
        """
        self._count, self._last = 0, b""
        # One that a file carries is on disk, in the ranks' own words.
        if page is not None and not page.on_disk:
            self._desk.keep_page(attempt, page.kept_fd)

    def look(self, attempt: int, lines: list[bytes]) -> None:
        """Have the sample written that has been taken, if one has.

        Args:
            attempt: whose samples these are.
            lines: all of them, the older ones thinned out now and then.
        """
        if not lines or lines[-1] is self._last:
            return
        name = f"{contract.attempt_dir('', attempt)}/{contract.SAMPLES_FILE}"
        if len(lines) == self._count + 1:
            self._desk.append(name, lines[-1])
        else:
            self._rewrite(name, lines)
        self._count, self._last = len(lines), lines[-1]

    def _rewrite(self, name: str, lines: list[bytes]) -> None:
        """Have the file hold what is left, so that it never grows past its bound."""
        with suppress(OSError):  # once more with the next sample that does not fit
            fd = os.memfd_create(contract.SAMPLES_FILE, os.MFD_CLOEXEC)
            try:
                os.write(fd, b"".join(lines))
                self._desk.save(name, fd)
            finally:
                os.close(fd)
