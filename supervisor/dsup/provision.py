"""What the agent needs once something goes wrong, laid in while all is well.

A process that has run out of descriptors can open no module any more, and what it would
have imported only then, to judge an attempt or to end it, would end the whole run. So
once the first ranks run, after the hurry of their start, those modules are imported one
by one, and a few descriptors are held, to be let go when a rank ends or hangs. In the
pause before a restart they are held again, for the next attempt to be started with.
"""

from __future__ import annotations

import contextlib
import os
from importlib import import_module
from typing import Final

from dsup.core.state import NEVER

AFTER_S: Final = 1.0
"""So long after the ranks' start, when they are at their own imports."""

AGAIN_S: Final = 10.0
HELD: Final = 16
"""An aide takes two and a verdict one; some aides are at work at the same time."""

_OF_DSUP: Final = (
    # a rank that hangs
    *("hang_news", "edges.census", "edges.capture", "facts.captured", "linux.spy"),
    *("report.hangs", "edges.slowness", "facts.samples"),
    # a rank that fails
    *("facts.note", "facts.told", "facts.errors", "places", "edges.scene"),
    *("report.outcome_file", "judging", "report.verdict_file"),
    # what is said of it
    *("report.panel", "report.journal_entry", "report.outlook", "report.notices"),
    # the end of the run
    *("outer", "report.takeover", "report.ledger"),
)
MODULES: Final = (*(f"dsup.{name}" for name in _OF_DSUP), "base64", "zlib")


class Provision:
    """Modules and descriptors for bad times.

    Attributes:
        due_s: when ``look`` is due, agent clock, seconds.
    """

    def __init__(self) -> None:
        self.due_s = NEVER
        self._missing = list(reversed(MODULES))
        self._held: list[int] = []
        self.hold()

    def started(self, now_s: float) -> None:
        """Begin to lay in: the ranks of an attempt run now."""
        if self._missing:
            self.due_s = now_s + AFTER_S
        self.hold()

    def look(self, now_s: float) -> None:
        """Import the next module, if it is time for it: one a turn delays nobody."""
        if now_s < self.due_s:
            return
        try:
            import_module(self._missing[-1])
        except (OSError, ImportError):  # one in C cannot be loaded
            self.due_s = now_s + AGAIN_S
            return
        self._missing.pop()
        self.due_s = now_s if self._missing else NEVER

    def spend(self) -> None:
        """Let the descriptors go: now is what they were held for."""
        while self._held:
            os.close(self._held.pop())

    def hold(self) -> None:
        """Hold descriptors for bad times, as many as can be had."""
        with contextlib.suppress(OSError):  # some are better than none
            while len(self._held) < HELD:
                self._held.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
