"""The console: whole lines, in bounded memory, at nobody's expense.

A reader that flows slowly is waited for a little; one that has stopped costs lines,
never time: whole lines are dropped until half of the memory is free again, and one
line says how many.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from dsup.edges.scribe.sink import DISK_FULL

if TYPE_CHECKING:
    from collections.abc import Callable

    from dsup.core.output import Tone
    from dsup.edges.scribe.sink import Sink

LIMIT_BYTES = 1024 * 1024
OWN_BYTES = 128 * 1024
"""Room beyond the limit for dsup's own lines: they are few, and the ones that count."""
PATIENCE_S = 0.05
PALETTE: dict[Tone, bytes] = {
    "plain": b"\x1b[2m",
    "warning": b"\x1b[33m",
    "failure": b"\x1b[1;31m",
}
OFF = b"\x1b[0m"
ERASE_LINE = b"\r\x1b[K"


class Console:
    """Lines on their way to one sink.

    Attributes:
        backlog: bytes that the sink has not taken, 0 when it was given up.
        moved_at: when the sink last took something; monotonic, seconds.
        drawn: whether the last thing on the terminal is a status line.
    """

    def __init__(
        self,
        sink: Sink | None,
        now: Callable[[], float],
        *,
        in_log: bool,
        colour: bool = False,
    ) -> None:
        """Make a console.

        Args:
            sink: where lines go; None for nowhere.
            now: monotonic clock, seconds.
            in_log: what it drops can be read in the logs.
            colour: dsup's own lines are coloured.
        """
        self.sink = sink
        self.backlog = 0
        self.moved_at = 0.0
        self.drawn = False
        self._now = now
        self._where = " (they are in the log)" if in_log else ""
        self._colour = colour
        self._queue: deque[memoryview] = deque()
        self._open: object = None  # whose unfinished line the queue ends with
        self._torn: set[object] = set()  # whose line lost its beginning
        self._dropped = 0

    def add(self, owner: object, block: bytes) -> None:
        """Show whole lines, or a piece of one that is too long, or a last word.

        Args:
            owner: whose lines these are: nobody else's come between two pieces.
            block: the bytes as they were written.
        """
        if self.sink is None:
            return
        block = self._mend(owner, block)
        if not self._dropped and self.backlog + len(block) > LIMIT_BYTES:
            self._wait(len(block))
        room = 0 if self._dropped else max(0, LIMIT_BYTES - self.backlog)
        kept = block
        if len(block) > room:
            kept = block[: block.rfind(b"\n", 0, room) + 1]
        self._put(owner, kept)
        if len(kept) < len(block):
            self._drop(owner, block[len(kept) :])
        self.flush()

    def say(self, text: bytes, tone: Tone = "plain") -> None:
        """Show a line of dsup's own; it is not dropped with the others."""
        if self.backlog < LIMIT_BYTES + OWN_BYTES:
            shown = PALETTE[tone] + text + OFF if self._colour else text
            self._put(self, shown + b"\n")
            self.flush()

    def continues(self, owner: object) -> bool:
        """Return whether what is shown ends inside a line of this owner's."""
        return self._open is owner

    def draw(self, line: bytes) -> None:
        """Show a status line, until something else is shown; not now if that hurts."""
        if self.sink and not self.backlog and self._open is None:
            self._queue_up(ERASE_LINE + line)
            self.drawn = True
            self.flush()

    def erase(self) -> None:
        """Take the status line away."""
        if self.drawn and self.sink:
            self.drawn = False
            self._queue_up(ERASE_LINE)
            self.flush()

    def flush(self) -> None:
        """Write what the sink takes now."""
        try:
            while self._queue and self.sink:
                self._took(self.sink.write(self._queue[0]))
        except BlockingIOError:
            pass
        except OSError as error:
            if error.errno not in DISK_FULL:
                self._give_up()
        if self._dropped and self.backlog <= LIMIT_BYTES // 2:
            self._confess()

    def finish(self, still_s: float, limit_s: float) -> None:
        """Flush while the sink moves.

        Args:
            still_s: how long it may take nothing, seconds.
            limit_s: how long all may last, seconds.
        """
        self.flush()
        started = self.moved_at = self._now()
        while self.sink and self.sink.pollable and self.backlog:
            until = min(self.moved_at + still_s, started + limit_s)
            if not self.sink.wait(until - self._now()) or self._now() >= until:
                return
            self.flush()

    def _mend(self, owner: object, block: bytes) -> bytes:
        """Return the block from its first line that has a beginning."""
        if owner not in self._torn:
            return block
        end = block.find(b"\n") + 1
        if end:
            self._torn.discard(owner)
        return block[end:] if end else b""

    def _wait(self, needed: int) -> None:
        until = self._now() + PATIENCE_S
        self.flush()
        while self.sink and self.backlog + needed > LIMIT_BYTES:
            left_s = until - self._now()
            if left_s <= 0 or not self.sink.pollable or not self.sink.wait(left_s):
                return
            self.flush()

    def _put(self, owner: object, block: bytes) -> None:
        if not block or self.sink is None:
            return
        if self._open not in (None, owner):
            block = b"\n" + block
        if self.drawn:
            self.drawn = False
            block = ERASE_LINE + block
        self._open = None if block.endswith(b"\n") else owner
        self._queue_up(block)

    def _queue_up(self, block: bytes) -> None:
        self._queue.append(memoryview(block))
        self.backlog += len(block)

    def _drop(self, owner: object, block: bytes) -> None:
        self._dropped += block.count(b"\n")
        if not block.endswith(b"\n"):
            self._dropped += 1
            self._torn.add(owner)
        if self._open is owner:
            self._open = self._torn  # nobody's: whoever comes next starts a new line

    def _took(self, count: int) -> None:
        self.backlog -= count
        self.moved_at = self._now()
        if count == len(self._queue[0]):
            self._queue.popleft()
        else:
            self._queue[0] = self._queue[0][count:]

    def _confess(self) -> None:
        reader = "terminal" if self.sink and self.sink.terminal else "reader"
        count, self._dropped = self._dropped, 0
        lines = f"{count:,} line{'s' if count > 1 else ''}"
        why = f"the {reader} did not take them{self._where}"
        self.say(f"dsup: {lines} not shown: {why}".encode(), "warning")

    def _give_up(self) -> None:
        self.sink = None
        self._queue.clear()
        self.backlog = self._dropped = 0
