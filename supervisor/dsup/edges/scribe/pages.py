"""Heartbeat pages as they stand on disk while their ranks run.

The agent hands a page's memory over once. It is copied to its file every few seconds,
and at once when the agent is lost, so that a killed agent takes nothing along: what the
ranks told last is in memory that this process holds, too.

A copy is the page and one word more: when it was made, monotonic clock, nanoseconds.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING, Final, NamedTuple

from dsup_runtime import contract

if TYPE_CHECKING:
    from collections.abc import Callable

COPY_S: Final = 5.0

# Not renamed into place: a page is a few blocks that are there already, which costs
# less, and a node that crashes leaves an older page, never an empty one.
_FLAGS: Final = (
    os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
) | os.O_CLOEXEC


class _Page(NamedTuple):
    path: str
    fd: int


class Pages:
    """The pages of the attempts that go on.

    Args:
        run_dir: where they are copied to.
        mode: of new files, before the umask.
        now: monotonic clock, seconds.

    Attributes:
        due_s: when ``copy`` is due, on that clock; inf where there is none.
    """

    def __init__(self, run_dir: str, mode: int, now: Callable[[], float]) -> None:
        self.due_s = inf
        self._run_dir = run_dir
        self._mode = mode
        self._now = now
        self._pages: dict[int, _Page] = {}

    def add(self, attempt: int, fd: int) -> None:
        """Copy a page from now on, until its attempt is closed.

        Args:
            attempt: whose it is.
            fd: its memory; this object's from now on.
        """
        self.close(attempt)
        directory = contract.attempt_dir(self._run_dir, attempt)
        path = os.path.join(directory, contract.HEARTBEATS_FILE)
        self._pages[attempt] = _Page(path, fd)
        self.copy()

    def close(self, attempt: int) -> None:
        """Let an attempt's page go; what its file holds stays."""
        page = self._pages.pop(attempt, None)
        if page:
            os.close(page.fd)
        if not self._pages:
            self.due_s = inf

    def close_all(self) -> None:
        """Let every page go."""
        for attempt in tuple(self._pages):
            self.close(attempt)

    def copy(self) -> None:
        """Copy every page; one whose disk does not take it waits for the next time."""
        for page in self._pages.values():
            with suppress(OSError):
                self._copy(page)
        self.due_s = self._now() + COPY_S if self._pages else inf

    def _copy(self, page: _Page) -> None:
        size = os.fstat(page.fd).st_size
        made = int(self._now() * 1e9).to_bytes(contract.WORD_BYTES, "little")
        copy = os.open(page.path, _FLAGS, self._mode)
        try:
            if stat.S_ISREG(os.fstat(copy).st_mode):
                os.pwrite(copy, os.pread(page.fd, size, 0) + made, 0)
        finally:
            os.close(copy)
