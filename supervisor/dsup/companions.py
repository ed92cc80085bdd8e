"""The companions of a run: who serves its metrics, and who runs a command for events.

They are processes of dsup's own, started after the ranks, and only if they are wanted.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from dsup.core.state import NEVER

if TYPE_CHECKING:
    import socket

    from dsup.core import commands as cmd
    from dsup.core import events as ev
    from dsup.core.job import Job
    from dsup.core.state import State
    from dsup.core.verdict import Verdict
    from dsup.edges.companion import Companion, Helpers

METRICS_LAST_S: Final = 5.0
EVENTS_LAST_S: Final = 6.0
"""A second more than the notifier takes by itself."""

WAITING_MAX: Final = 64


class Present(Protocol):
    """What this needs of the present."""

    def document(self, *, anew: bool = False) -> Mapping[str, Any]:
        """Return the status document; ``anew``: of this very moment."""


class Companions:
    """Those that are wanted; without any, all of this does nothing.

    Args:
        job: says who is wanted.
        aides: bury them, and wait for them at the end.
        present: how the run stands.
        warn: takes what they have to say.
    """

    def __init__(
        self,
        job: Job,
        aides: Helpers,
        present: Present,
        warn: Callable[[str], None],
    ) -> None:
        self._job = job
        self._aides = aides
        self._present = present
        self._warn = warn
        self._exporter: Companion | None = None
        self._notifier: Companion | None = None
        self._blind = False
        self._waiting: deque[bytes] = deque()
        self._untold = 0

    @property
    def pids(self) -> set[int]:
        """Their pids."""
        return {one.pid for one in self._all()} - {0}

    @property
    def due_s(self) -> float:
        """When ``look`` is due, agent clock, seconds."""
        return min((one.due_s for one in self._all()), default=NEVER)

    def started(self, control: str) -> None:
        """Start those who are wanted: the ranks of an attempt run.

        Args:
            control: path of the control socket; empty for none.
        """
        from dsup.edges.companion import Companion

        job = self._job
        wanted = bool(job.metrics or job.metrics_file) and not self._exporter
        if wanted and not control and not self._blind:
            self._blind = True
            self._warn("no metrics are told, because nobody can be asked for them")
        elif wanted and control:
            be = partial(_export, job, control)
            self._exporter = Companion("the metrics", be, self._aides, self._warn)
            self._exporter.start()
        if job.on_event and not self._notifier:
            be = partial(_notify, job)
            self._notifier = Companion("--on-event", be, self._aides, self._warn)
            self._notifier.start()

    def tell(
        self, before: State, event: ev.Event, after: State, verdict: Verdict | None
    ) -> None:
        """Tell what happened, where a command wants to know.

        Args:
            before: the state that the event met.
            event: what happened.
            after: the state it led to.
            verdict: of the attempt; None while there is none.
        """
        if self._job.on_event:
            from dsup.report import notices

            for told in notices.notices(before, event, after, verdict):
                self._post(told, after.attempt)

    def look(self, now_s: float) -> None:
        """Do what has become due.

        Args:
            now_s: agent clock, seconds.
        """
        for one in self._all():
            one.look(now_s)
        self._flush()

    def end(self, after: State, end: cmd.Exit, control: str) -> None:
        """Give them a moment to tell how it ended, one where no rank ever ran as well.

        Args:
            after: the state that the run ended in.
            end: its exit code, and whose that is.
            control: see ``started``.
        """
        self.started(control)
        for one in self._all():
            one.renew()
        if self._job.on_event:
            from dsup.report import notices

            told = notices.ended(after, end.code, end.origin)
            self._post(told, after.attempt, last=True)
        if self._notifier:
            self._notifier.end(EVENTS_LAST_S)
            self._say_untold()
        if self._exporter:
            self._send_last(self._exporter)
            self._exporter.end(METRICS_LAST_S)

    def _all(self) -> list[Companion]:
        return [one for one in (self._exporter, self._notifier) if one]

    def _post(
        self, told: Mapping[str, Any], attempt: int, *, last: bool = False
    ) -> None:
        import json

        from dsup.edges import notifier
        from dsup.report import notices, snapshot

        name = snapshot.name_of(self._job, os.uname().nodename)
        whole = notices.complete(told, name, attempt, _wall_s())
        kind = notifier.FINAL if last else notifier.PLAIN
        self._waiting.append(kind + json.dumps(whole).encode())
        if len(self._waiting) > WAITING_MAX:
            self._waiting.popleft()
            self._untold += 1
        self._flush()

    def _flush(self) -> None:
        """Hand over what waits; a notifier that does not take it gets it later."""
        while self._waiting and self._notifier:
            if not self._notifier.send(self._waiting[0]):
                return
            self._waiting.popleft()

    def _say_untold(self) -> None:
        untold = self._untold + len(self._waiting)
        if untold:
            were = "was" if untold == 1 else "were"
            self._warn(f"--on-event: {untold} of the events {were} not told")

    def _send_last(self, exporter: Companion) -> None:
        """Send how the run ended: nobody answers at the control socket any more."""
        import json

        from dsup.edges.control import sealed

        data = json.dumps(self._present.document(anew=True), allow_nan=False).encode()
        try:
            fd = sealed(data)
        except OSError:
            return
        exporter.send(b"last", [fd])
        os.close(fd)


def _wall_s() -> float:
    return time.clock_gettime(time.CLOCK_REALTIME)


def _export(job: Job, control: str, pair: socket.socket) -> None:
    from dsup import exporter
    from dsup.core.address import address

    listen = address(job.metrics) if job.metrics else None
    run = os.path.basename(job.run_dir)
    exporter.run(exporter.Order(run, control, listen, job.metrics_file), pair)


def _notify(job: Job, pair: socket.socket) -> None:
    import shlex

    from dsup.edges import notifier

    words = tuple(shlex.split(job.on_event))
    notifier.run(notifier.Order(words, job.environment), pair)
