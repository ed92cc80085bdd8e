"""Both consoles, and what is shown there: ranks' lines, dsup's own, the status line."""

from __future__ import annotations

import json
import os
import select
from math import inf
from typing import TYPE_CHECKING

from dsup.edges.scribe.console import OFF, Console
from dsup.edges.scribe.desk import stamp_now
from dsup.edges.scribe.journald import Journald, leads_to_journal
from dsup.edges.scribe.sink import open_sinks
from dsup.edges.scribe.status import StatusLine
from dsup.edges.scribe.view import Look, View

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dsup.core.output import Tone
    from dsup.edges.scribe.protocol import Settings
    from dsup.edges.scribe.sink import Sink

STILL_S = 0.5
FINISH_S = 2.0
_STDERR = 2
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
        told = settings.journal_stream
        self._journaled = {fd for fd in (1, 2) if told and leads_to_journal(fd, told)}
        name = os.path.basename(settings.run_dir)
        self._journald = Journald(name, now) if self._journaled else None
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
        due_s = self._status.due_s if self._status else inf
        return min(due_s, self._journald.due_s) if self._journald else due_s

    def view(self, attempt: int, local_rank: int, which: int) -> View | None:
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
        look = Look(prefix, stamp, colour)
        if self._journald is None or which + 1 not in self._journaled:
            return View(console, look, self._now)
        pieces = self._journald.open(attempt, local_rank, which, console)
        return View(pieces, look, self._now)

    def say(self, line: bytes, tone: Tone) -> None:
        """Show a line of dsup's own."""
        if not self._enter(line, tone, {}):
            self._err.say(line, tone)

    def enter(self, text: bytes, tone: Tone) -> None:
        """Put a line with fields into the journal, if that is where it is read."""
        line, _, fields = text.partition(b"\n")
        self._enter(line, tone, json.loads(fields))

    def _enter(self, line: bytes, tone: Tone, fields: Mapping[str, object]) -> bool:
        if self._journald is None or _STDERR not in self._journaled:
            return False
        return self._journald.say(line, tone, fields)

    def status(self, text: str) -> None:
        """Have a text in the status line."""
        if self._status:
            self._status.set(text)

    def turn(self) -> None:
        """Write what is taken now, and draw what is due."""
        if self._journald:
            self._journald.turn()
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
        if self._journald:
            self._journald.finish()
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
