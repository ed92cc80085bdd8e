"""The newest checkpoint that a pattern matches, looked for now and then.

Ranks that use dsup's runtime tell what they save. Of others dsup would know only what
they resumed from: so an aide looks once a minute, where ``--checkpoint-glob`` says. It
decides nothing; what a restart resumes from is looked for when it comes to that.
"""

from __future__ import annotations

import json
import os
import time
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from dsup.core.state import NEVER

if TYPE_CHECKING:
    from dsup.edges.aide import Aides

EVERY_S: Final = 60.0
LOOK_S: Final = 30.0
"""What one look may take; a file system that is silent is left alone from then on."""


class Saved(NamedTuple):
    """A complete checkpoint.

    Attributes:
        at_s: when it was written to last, agent clock, seconds.
    """

    step: int
    at_s: float


class Newest:
    """Looks for the newest checkpoint while ranks are alive.

    Args:
        pattern: a shell glob; empty to look for nothing.
        aides: one of them looks.

    Attributes:
        found: the last answer; None for none.
    """

    def __init__(self, pattern: str, aides: Aides) -> None:
        self.found: Saved | None = None
        self._pattern = pattern
        self._aides = aides
        self._due_s = NEVER

    def started(self, now_s: float) -> None:
        """Begin anew: the ranks of an attempt run.

        Args:
            now_s: agent clock, seconds.
        """
        if self._pattern:
            self._due_s = now_s + EVERY_S

    def look(self, now_s: float, *, alive: bool) -> None:
        """Have somebody look, if it is time for that.

        Args:
            now_s: agent clock, seconds.
            alive: there are ranks that may have saved something.
        """
        if now_s >= self._due_s and alive:
            # Until there is an answer: who hangs is not joined by another.
            self._due_s = NEVER
            work = partial(search, self._pattern)
            self._aides.start(work, now_s + LOOK_S, self._answered)

    def _answered(self, answer: bytes) -> None:
        if not answer:
            return
        self._due_s = time.monotonic() + EVERY_S
        found = json.loads(answer)
        if found is not None:
            step, wall_s = found
            offset_s = time.clock_gettime(time.CLOCK_REALTIME) - time.monotonic()
            self.found = Saved(step, wall_s - offset_s)


def search(pattern: str) -> bytes:
    """Return step and time of the newest complete checkpoint; in an aide."""
    from dsup_runtime.checkpoints import foreign

    newest = foreign.newest_foreign(pattern).newest
    if newest is None or newest.step < 0:
        return b"null"
    return json.dumps([newest.step, os.stat(newest.path).st_mtime]).encode()
