"""What follows a run from outside: a tracker, told of its start and, once, of its end.

Only the main rank has one. A tracker's own trouble is never the run's: each call is
waited for within a limit, and the error of a run that fails is the run's.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final, Protocol

from dsup_runtime import deferred
from dsup_runtime.bounded import BoundedCall
from dsup_runtime.rank_log import log

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dsup_runtime.lifecycle.outcome import Outcome
    from dsup_runtime.worker_info import Info

START_MAX_S: Final = 60.0
FINISH_MAX_S: Final = 30.0


class Reporter(Protocol):
    """Anything that can be told of a run; it needs no base class.

    An attribute ``required = False`` makes a ``start`` that fails a mere warning;
    without it the run ends as failed at the next agreed stop.
    """

    def start(self, info: Info) -> None:
        """Begin, or begin again: a later attempt goes on with the same record."""

    def event(self, name: str, fields: Mapping[str, object]) -> None:
        """Note that something happened."""

    def finish(self, outcome: Outcome) -> None:
        """End the record; called exactly once for each start that succeeded."""


class Reporting:
    """A reporter's life: started within a limit, finished at most once.

    Args:
        reporter: the tracker; None where there is nothing to tell, as on other ranks.
    """

    __slots__ = ("_once", "_reporter", "_start")

    def __init__(self, reporter: Reporter | None) -> None:
        self._reporter = reporter
        self._once = threading.Lock()
        self._start: BoundedCall | None = None

    def start(self, info: Info, limit_s: float = START_MAX_S) -> None:
        """Start the reporter; what goes wrong is deferred, or a warning.

        Args:
            info: who this rank is.
            limit_s: how long to wait for the tracker, seconds.
        """
        reporter = self._reporter
        if reporter is None:
            return
        self._start = BoundedCall(lambda: reporter.start(info), name="dsup-report")
        error = self._trouble(limit_s)
        if error is None:
            return
        if getattr(reporter, "required", True):
            deferred.keep(error, where="reporter.start")
        else:
            log.warning("cannot report this run: %s", error, exc_info=error)

    def finish(
        self,
        outcome: Outcome,
        events: Mapping[str, Mapping[str, object]],
        limit_s: float,
    ) -> None:
        """Tell the last events and the end, the first time; log what goes wrong.

        Args:
            outcome: how the run ended.
            events: what to note before that, by name.
            limit_s: how long to wait for the tracker, seconds.
        """
        reporter = self._reporter
        if reporter is None or not self._once.acquire(blocking=False):
            return
        if self._trouble(0) is not None:
            return

        def tell() -> None:
            try:
                for name, fields in events.items():
                    reporter.event(name, fields)
            finally:
                reporter.finish(outcome)

        call = BoundedCall(tell, name="dsup-report")
        if not call.ended_within(min(limit_s, FINISH_MAX_S)):
            log.error("cannot wait longer for the reporter to finish (the run goes on)")
        elif call.error is not None:
            log.error("cannot finish the report", exc_info=call.error)

    def _trouble(self, limit_s: float) -> Exception | None:
        """Return why there is no started reporter; None if there is one."""
        if self._start is None:
            return RuntimeError("the reporter was never started")
        if not self._start.ended_within(limit_s):
            return TimeoutError(
                f"cannot start the reporter within {limit_s:.0f} s, because it does not"
                " return (look at its server, or set its required to False)"
            )
        error = self._start.error
        if error is None or isinstance(error, Exception):
            return error
        return RuntimeError(f"the reporter ended its start with {error!r}")
