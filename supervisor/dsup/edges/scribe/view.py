"""One stream on a console: whole lines, each behind its lead, and nothing harmful.

A line that stays unfinished is shown after a fifth of a second, because it may be a
question. A line that is overwritten again and again (a progress bar) is shown once a
second, as a line, and once more as it was in the end.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, NamedTuple

from dsup.edges.scribe import text

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    class Surface(Protocol):
        """What lines are put on; a ``Console``, or what stands for one."""

        def add(self, owner: object, block: bytes) -> None:
            """Show whole lines, or a piece of one."""

        def continues(self, owner: object) -> bool:
            """Return whether what is shown ends inside a line of this owner's."""


UNFINISHED_S = 0.2
BAR_S = 1.0


class Look(NamedTuple):
    """How a stream's lines look.

    Attributes:
        prefix: before each line; empty for none.
        stamp: returns the time to put before that; None for no times.
        colour: colours that a rank prints are shown.
    """

    prefix: bytes
    stamp: Callable[[], bytes] | None
    colour: bool


class View:
    """Shows one stream.

    Attributes:
        due_s: when ``tick`` has something to show; inf for nothing.
    """

    def __init__(self, console: Surface, look: Look, now: Callable[[], float]) -> None:
        self.due_s = inf
        self._console = console
        self._look = look
        self._now = now
        self._inside = False  # what was shown last ended inside a line
        self._rest = b""
        self._seen = 0  # so much of the rest is on the console
        self._bar: bytes | None = None  # the state of this line's bar that was shown
        self._bar_at = -inf

    def lines(self, block: bytes) -> None:
        """Show whole lines, or a piece of one that is too long for memory.

        Args:
            block: begins with what was the rest before.
        """
        if b"\r" in block and not text.is_binary(block):
            block = self._settle(block)
        block = block[self._seen :]
        if self._seen and not self._continues() and block.startswith(b"\n"):
            block = block[1:]  # another's line has ended it already
        self._show(block)
        self._rest, self._seen, self._bar, self.due_s = b"", 0, None, inf

    def rest(self, line: bytes) -> None:
        """Take note of a line that is not finished, all of it so far."""
        self._rest = line
        if line.startswith(b"\r"):
            state = line.strip(b"\r")
            wanted = state.strip() and state != self._bar
            soon = max(self._now() + UNFINISHED_S, self._bar_at + BAR_S)
            self.due_s = min(self.due_s, soon) if wanted else inf
        elif len(line) > self._seen:
            self.due_s = min(self.due_s, self._now() + UNFINISHED_S)

    def tick(self) -> None:
        """Show what is unfinished."""
        self.due_s = inf
        if self._rest.startswith(b"\r"):
            self._break()
            self._bar, self._bar_at = self._rest.strip(b"\r"), self._now()
            self._show(self._bar + b"\n")
        else:
            end = text.whole_characters(self._rest.rstrip(b"\r"))
            self._show(self._rest[self._seen : end])
            self._seen = end

    def end(self) -> None:
        """Show what stays unfinished, because the stream has ended."""
        state = self._rest.strip(b"\r")
        if not self._rest.startswith(b"\r"):
            self._show(self._rest.rstrip(b"\r")[self._seen :])
        elif state.strip() and state != self._bar:
            self._break()
            self._show(state)
        self._rest, self._seen, self.due_s = b"", 0, inf

    def _settle(self, block: bytes) -> bytes:
        """Return the last states of lines, less a first one that is shown already."""
        first, newline, others = block.partition(b"\n")
        if b"\r" in first.rstrip(b"\r"):
            self._break()
        block = text.final_states(block)
        first, newline, others = block.partition(b"\n")
        return others if newline and first == self._bar else block

    def _break(self) -> None:
        """Leave what was shown of the line as it is; its next state is another line."""
        if self._seen and self._continues():
            self._console.add(self, b"\n")
            self._inside = False
        self._seen = 0

    def _continues(self) -> bool:
        return self._inside and self._console.continues(self)

    def _show(self, block: bytes) -> None:
        if text.is_binary(block):
            words = text.last_words(block)
            count = len(block) - len(words)
            block = b"(%d bytes that are not text)\n" % count + words
        if not block:
            return
        begins = not self._continues()
        self._inside = not block.endswith(b"\n")
        shown = text.clean(block, colour=self._look.colour)
        lead = self._lead()
        if not lead:
            shown = text.own_up(shown, begins=begins)
        self._console.add(self, text.lead(shown, lead, begins=begins))

    def _lead(self) -> bytes:
        stamp = self._look.stamp() if self._look.stamp else b""
        return stamp + self._look.prefix
