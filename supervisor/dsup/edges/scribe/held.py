"""What the agent keeps open, so that a new scribe can take over from a dead one."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


class Held:
    """The ranks' pipes and the heartbeat pages, of every attempt that is not closed.

    Attributes:
        streams: the two read ends of each attempt's ranks.
        pages: the memory of each attempt's page.
    """

    def __init__(self) -> None:
        self.streams: dict[tuple[int, int], tuple[int, int]] = {}
        self.pages: dict[int, int] = {}

    def read_ends(self) -> list[int]:
        """Return every read end."""
        return [fd for fds in self.streams.values() for fd in fds]

    def all(self) -> set[int]:
        """Return every descriptor."""
        return {*self.read_ends(), *self.pages.values()}

    def release(self, attempt: int) -> Iterator[tuple[int, int]]:
        """Yield the read ends of an attempt; they are closed then, and so is its page.

        Args:
            attempt: which nobody needs any more.
        """
        if attempt in self.pages:
            os.close(self.pages.pop(attempt))
        for key in [key for key in self.streams if key[0] == attempt]:
            fds = self.streams.pop(key)
            yield fds
            for fd in fds:
                os.close(fd)
