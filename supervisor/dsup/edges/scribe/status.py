"""The status line: one, at the bottom of a terminal, and calm."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from dsup.edges.scribe.console import OFF, PALETTE

if TYPE_CHECKING:
    from collections.abc import Callable

    from dsup.edges.scribe.console import Console

REDRAW_S = 1.0
QUIET_S = 0.2
"""How long no line may have come: where lines flow, a line below them only flickers."""


class StatusLine:
    """Keeps one line below all others.

    Attributes:
        due_s: when ``tick`` has something to draw; inf for nothing.
    """

    def __init__(
        self, console: Console, now: Callable[[], float], *, colour: bool
    ) -> None:
        self.due_s = inf
        self._console = console
        self._now = now
        self._colour = colour
        self._text = ""
        self._shown = ""
        self._drawn_at = -inf

    def set(self, text: str) -> None:
        """Have a text shown; empty for none."""
        self._text = text

    def plan(self) -> None:
        """Find out when to draw, after lines may have been shown."""
        gone = not self._console.drawn
        if not self._text or (self._text == self._shown and not gone):
            self.due_s = inf
        else:
            quiet = self._console.moved_at + QUIET_S if gone else -inf
            self.due_s = max(self._drawn_at + REDRAW_S, quiet)

    def tick(self) -> None:
        """Draw what is due; a line too long for the terminal is cut."""
        self._drawn_at = self._now()
        self._shown = self._text
        sink = self._console.sink
        if sink is None:
            self._text = ""
            return
        line = self._text[: sink.columns() - 1].encode(errors="replace")
        self._console.draw(PALETTE["plain"] + line + OFF if self._colour else line)
