"""Both consoles, and what is shown there: ranks' lines, dsup's own, the status line."""

from __future__ import annotations

import select
from math import inf
from typing import TYPE_CHECKING

from dsup.edges.scribe.console import OFF, Console
from dsup.edges.scribe.desk import stamp_now
from dsup.edges.scribe.sink import open_sinks
from dsup.edges.scribe.status import StatusLine
from dsup.edges.scribe.view import Look, View

if TYPE_CHECKING:
    from collections.abc import Callable

    from dsup.core.output import Tone
    from dsup.edges.scribe.protocol import Settings
    from dsup.edges.scribe.sink import Sink

STILL_S = 0.5
FINISH_S = 2.0
PREFIX_COLOURS = (36, 35, 34, 32, 96, 95, 94, 92)
"""A rank's prefix keeps its colour; red and yellow are dsup's own."""


class Screen:
    """What descriptors 1 and 2 show.

    Attributes:
        stuck: lines wait for something that cannot be polled: to be tried again.
    """

    def __init__(
        self, settings: Settings, epoll: select.epoll, now: Callable[[], float]
    ) -> None:
        self.stuck = False
        self._settings = settings
        self._epoll = epoll
        self._now = now
        self._watched: dict[Console, int] = {}
        out, err = open_sinks()
        self._err = self._console(err)
        self._out = self._err if out is err else self._console(out)
        self._consoles = {self._err, self._out}
        self._status: StatusLine | None = None
        # With another program between stdout and the terminal, its lines would run
        # into the status line.
        alone = out is err or out is None or not out.pollable
        if settings.output.status and err and err.terminal and alone:
            colour = settings.output.colour
            self._status = StatusLine(self._err, now, colour=colour)

    @property
    def due_s(self) -> float:
        """Return when ``turn`` has something to draw; inf for never."""
        return self._status.due_s if self._status else inf

    def view(self, local_rank: int, which: int) -> View | None:
        """Return what shows a stream of a rank, None if it is not to be shown."""
        output, route = self._settings.output, self._settings.route(local_rank, which)
        console = self._err if which else self._out
        if route.console == "none" or console.sink is None:
            return None
        prefix = route.prefix.encode() if route.console == "prefixed" else b""
        if prefix and output.colour:
            code = PREFIX_COLOURS[local_rank % len(PREFIX_COLOURS)]
            prefix = b"\x1b[%dm" % code + prefix + OFF
        colour = output.colour or console.sink.terminal
        stamp = stamp_now if output.timestamps else None
        return View(console, Look(prefix, stamp, colour), self._now)

    def say(self, line: bytes, tone: Tone) -> None:
        """Show a line of dsup's own."""
        self._err.say(line, tone)

    def status(self, text: str) -> None:
        """Have a text in the status line."""
        if self._status:
            self._status.set(text)

    def turn(self) -> None:
        """Write what is taken now, and draw what is due."""
        for console in self._consoles:
            console.flush()
            self._watch(console)
        if self._status:
            self._status.plan()
            if self._now() >= self._status.due_s:
                self._status.tick()
                self._status.plan()
        self.stuck = any(c.backlog and c not in self._watched for c in self._consoles)

    def finish(self) -> None:
        """Write what is still taken, within seconds, and leave no status line."""
        self._err.erase()
        for console in self._consoles:
            console.finish(STILL_S, FINISH_S)

    def _console(self, sink: Sink | None) -> Console:
        settings = self._settings
        shown = [
            settings.route(rank, which)
            for rank in range(settings.local_world_size)
            for which in (0, 1)
        ]
        in_log = all(route.file for route in shown if route.console != "none")
        colour = settings.output.colour
        return Console(sink, self._now, in_log=in_log, colour=colour)

    def _watch(self, console: Console) -> None:
        wanted = console.backlog > 0 and console.sink
        if bool(wanted) == (console in self._watched):
            return
        if not wanted:
            self._epoll.unregister(self._watched.pop(console))
            return
        try:
            self._epoll.register(wanted.fd, select.EPOLLOUT)
        except OSError:  # a file or a device that does not poll: the tick retries
            return
        self._watched[console] = wanted.fd
