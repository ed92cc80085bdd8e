"""The logs of a run on their way out: those there are, then those that come."""

from __future__ import annotations

import heapq
import time
from collections.abc import Iterator, Sequence
from typing import Final

from dsup.cli import log_choice
from dsup.cli.log_choice import Wish
from dsup.cli.log_printer import Lines, Paper, Style
from dsup.cli.log_stream import LogStream, Source
from dsup.cli.run_files import is_over

POLL_S: Final = 0.2
OVER_POLL_S: Final = 1.0

LOGS_WITHIN_S: Final = 10.0
"""A run that keeps logs has begun them so long after its ranks have directories."""


class Logs:
    """The logs that are meant.

    Args:
        wish: which of them.
        paper: where they go.
        style: how they look.

    Raises:
        SpecError: the run has no such logs; says why.
    """

    def __init__(self, wish: Wish, paper: Paper, style: Style) -> None:
        self._wish = wish
        self._paper = paper
        self._style = style
        self._lines: list[Lines] = []
        self._attempt = -1 if wish.attempt is None else wish.attempt - 1
        self._skip = 0
        self._gaps: set[Source] = set()
        self._over = False
        self._look_s = 0.0
        self._chosen = log_choice.attempts(wish)
        known = log_choice.any_logs(wish, self._chosen)
        hopeless = not wish.follow or log_choice.none_kept(wish) or is_over(wish.path)
        if not known and hopeless:
            raise log_choice.no_logs(wish)
        self._patience_s = time.monotonic() + LOGS_WITHIN_S

    def show(self) -> None:
        """Show what there is; to follow, what comes, until the run is over.

        Raises:
            SpecError: a run that was hoped to keep logs keeps none.
            UnreadableRunError: a log cannot be read.
            OSError: nobody reads what is shown.
        """
        first, self._skip = self._begin()
        for attempt in self._chosen:
            if attempt >= first:
                self._open(attempt)
                self._drain()
        while self._wish.follow and self._comes():
            time.sleep(POLL_S)
        self._close()
        self._paper.end()

    def _begin(self) -> tuple[int, int]:
        """Return the first attempt to show, and how many lines of it are left out."""
        first = self._chosen[0] if self._chosen else 0
        if self._wish.last is None:
            return first, 0
        total = 0
        for attempt in reversed(self._chosen):
            for stream in log_choice.streams(self._wish, attempt):
                total += _narrowed(stream, self._wish)
                stream.close()
            first = attempt
            if total >= self._wish.last:
                break
        return first, max(0, total - self._wish.last)

    def _open(self, attempt: int, *, coming: bool = False) -> None:
        self._close()
        several = attempt > 0 or self._attempt >= 0
        self._attempt = attempt
        if several and self._wish.attempt is None and not self._style.raw:
            self._paper.say(f"attempt {attempt}", self._style)
        for stream in log_choice.streams(self._wish, attempt):
            if not coming:
                _narrowed(stream, self._wish)
            self._lines.append(Lines(stream, self._paper, self._style))

    def _close(self) -> None:
        for lines in self._lines:
            lines.end()
            lines.stream.close()
        self._lines = []

    def _drain(self) -> bool:
        """Show what there is; return whether there was anything."""
        shown = False
        for lines in merged(self._lines):
            self._skip = lines.take(lines.stream.read(), self._skip)
            shown = True
        return shown

    def _comes(self) -> bool:
        """Show what has come; return whether more may."""
        over = self._is_over()
        while self._grown():
            pass
        for lines in self._lines:
            lines.tick()
        if self._next():
            return True
        self._refuse_to_wait()
        wish = self._wish
        passed = wish.attempt is not None and log_choice.ranks(
            wish.path, wish.attempt + 1
        )
        return not over and not passed

    def _grown(self) -> bool:
        for lines in self._lines:
            lines.stream.grow()
        self._tell_of_gaps()
        return self._drain()

    def _next(self) -> bool:
        """Open the logs of the next attempt, and late ones; return whether any were."""
        wish, following = self._wish, self._attempt + 1
        wanted = wish.attempt is None or following <= wish.attempt
        if wanted and log_choice.ranks(wish.path, following):
            self._open(following, coming=True)
            return True
        known = {lines.stream.source for lines in self._lines}
        late = [
            LogStream(wish.path, source)
            for source in (log_choice.sources(wish, self._attempt) if known else ())
            if source not in known
        ]
        self._lines += [Lines(one, self._paper, self._style) for one in late]
        return bool(late)

    def _is_over(self) -> bool:
        """Return whether the run has ended: then all has been written."""
        now_s = time.monotonic()
        if not self._over and now_s >= self._look_s:
            self._look_s = now_s + OVER_POLL_S
            self._over = is_over(self._wish.path)
        return self._over

    def _refuse_to_wait(self) -> None:
        if any(lines.stream.begun for lines in self._lines):
            return
        if not self._lines or time.monotonic() < self._patience_s:
            return
        if not log_choice.any_logs(self._wish, [self._attempt]):
            raise log_choice.no_logs(self._wish)

    def _tell_of_gaps(self) -> None:
        for lines in self._lines:
            source = lines.stream.source
            if lines.stream.missed and source not in self._gaps:
                self._gaps.add(source)
                self._paper.say(
                    f"lines of rank {source.rank} may be missing from here on: its log "
                    "is rotated faster than it is read",
                    self._style,
                )


def merged(lines: Sequence[Lines]) -> Iterator[Lines]:
    """Yield whose turn it is until nothing is left, in the order of time.

    Between two turns whoever's it was has to be read on.
    """
    waiting = [
        (one.stream.at_ns, number)
        for number, one in enumerate(lines)
        if one.stream.left
    ]
    heapq.heapify(waiting)
    while waiting:
        _, number = waiting[0]
        yield lines[number]
        stream = lines[number].stream
        if stream.left:
            heapq.heapreplace(waiting, (stream.at_ns, number))
        else:
            heapq.heappop(waiting)


def _narrowed(stream: LogStream, wish: Wish) -> int:
    """Pass over what is not wanted of a stream; return how many lines are left."""
    if wish.since_ns is not None:
        stream.skip_until(wish.since_ns)
    if wish.last is None:
        return 0
    if wish.last == 0:
        stream.skip_all()
        return 0
    return stream.keep_last(wish.last)
