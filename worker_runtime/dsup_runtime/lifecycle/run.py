"""``run``: every run ends in one truthful state, the same for process and tracker.

A block that ends well ends together: all ranks meet, exchange the errors they have
deferred, destroy their groups, and only then raise. The rank that owns an error raises
the very object; the others raise PeerError, so that no rank claims a success that the
run did not have. A block that an exception leaves meets nobody: dsup is told, the
groups are destroyed within a limit, so that the peers notice, and the exception goes on
unchanged. In both cases the outcome is then written down and the reporter finished.

``sys.exit(0)`` on one rank is no success of the run: it counts as the block's end, and
waits a few seconds for the others to end theirs.

Not covered: threads of the script's own that keep the process alive after the run.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final, Self

from dsup_runtime import deferred, error_text, heartbeat, stop, stop_page, worker_info
from dsup_runtime.barriers import barrier
from dsup_runtime.lifecycle import groups, last_words, outcome
from dsup_runtime.lifecycle.ending import Ending
from dsup_runtime.lifecycle.interrupts import Interrupts
from dsup_runtime.lifecycle.signals import Handlers
from dsup_runtime.rank_log import log

if TYPE_CHECKING:
    from types import TracebackType

    from dsup_runtime.lifecycle.outcome import Outcome
    from dsup_runtime.lifecycle.reporting import Reporter
    from dsup_runtime.stop import Stop

_EARLY_EXIT_S: Final = 5.0
"""How long sys.exit(0) waits for the others, who may wait for this rank meanwhile."""

_LEAVE_MIN_S: Final = 0.5
_LEAVE_MAX_S: Final = 1e9  # about 30 years
_FAILED: Final = ("error", "peer")


def run(*, reporter: Reporter | None = None, leave_timeout_s: float = 60.0) -> Run:
    """Return the context that a training's whole life goes into, all ranks alike.

    Inside, SIGTERM asks for an agreed stop. A run that was stopped so, or by a time
    limit, ends in SystemExit(143) where ``leave`` is called; so does one whose loop was
    over when it was asked to stop.

    Args:
        reporter: what is told of start and end; the main rank's is used.
        leave_timeout_s: how long ranks wait for each other at the end, seconds.

    Raises:
        ValueError: if the limit is no length of time.
    """
    if not 0 < leave_timeout_s <= _LEAVE_MAX_S:  # also refuses nan
        message = (
            f"cannot wait {leave_timeout_s!r} s for the other ranks, because that is no"
            " length of time (give leave_timeout_s seconds above 0, at most"
            f" {_LEAVE_MAX_S:.0f})"
        )
        raise ValueError(message)
    return Run(reporter, leave_timeout_s)


class Run:
    """A run that is under way; made by ``run``."""

    def __init__(self, reporter: Reporter | None, leave_timeout_s: float) -> None:
        self._info = worker_info.info()
        self._pid = 0
        self._leave_timeout_s = leave_timeout_s
        self._ending = Ending(self._info, reporter)
        self._handlers = Handlers(
            self._ending.begin_grace, self._ending.expire, self._ending.give_up
        )
        self._phase = ExitStack()
        self._left = False
        self.begun = False
        self._verdict: tuple[BaseException | None, Outcome] | None = None

    def __enter__(self) -> Self:
        """Install the handlers, start the reporter."""
        _open.enter(self)
        self._pid = os.getpid()
        try:
            self._handlers.install()
            self._ending.start()
        except BaseException as error:
            self._end(error)
            raise
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        """End the run; what is raised here takes the place of a block that ended."""
        if os.getpid() != self._pid:
            return  # a forked child came out of the block: the run is not its to end
        try:
            if error is None:
                self.leave()
            elif isinstance(error, SystemExit) and outcome.exit_code(error) == 0:
                self._leave(min(_EARLY_EXIT_S, self._leave_timeout_s))
                error = None
        except BaseException as raised:
            self._end(raised)
            raise
        self._end(error)

    def leave(self) -> None:
        """Part from the other ranks: meet, exchange errors, destroy groups, raise.

        All ranks call it; so does the end of the block if nobody did. After it, the
        main rank may go on alone inside the block. A second call does nothing, but
        raise what the first has raised.

        Raises:
            Exception: the first error that this rank has deferred, the object itself.
            PeerError: if another rank has deferred one, or did not come.
            BarrierTimeout: if a rank did not come in time.
            SystemExit: 143, if the run was stopped and is to be resumed.
        """
        self._leave(self._leave_timeout_s)

    def _leave(self, timeout_s: float) -> None:
        if self._left:
            if self._verdict is not None and self._verdict[0] is not None:
                raise self._verdict[0]
            return
        self._left = True
        self._phase.enter_context(heartbeat.phase("finish"))
        self._handlers.ask_no_more()  # no rank would hear of it any more
        error, end = self._part(timeout_s)
        self._verdict = error, end
        if error is not None:
            raise error

    def _part(self, timeout_s: float) -> tuple[BaseException | None, Outcome]:
        """Meet, exchange, destroy; return what to raise, and the outcome it means."""
        reports = last_words.own(self._info.rank)
        asked, agreed = stop.wish(), stop.agreed() is not None
        if asked is not None and asked.is_resumed:
            self._ending.begin_grace()
        alone: Exception | None = stop.ended()
        try:
            if alone is None:  # else the others are ended too, or gone
                limit_s = max(self._ending.left_s(timeout_s), _LEAVE_MIN_S)
                barrier("run.leave", timeout_s=limit_s)
                reports, asked = last_words.exchange(
                    reports, asked, agreed=agreed, timeout_s=limit_s
                )
                stop.conclude(asked)
                stop.drain(timeout_s=min(limit_s, stop.DRAIN_S))
        except Exception as fault:  # noqa: BLE001 (the groups have to go all the same)
            alone = fault
        # A rank that is not here may wait for this one in a collective.
        trouble = groups.destroy() if alone is None else groups.cut_off()
        error = last_words.to_raise(reports, self._info.rank)
        if error is None:
            if trouble is not None:
                log.warning("%s", trouble)
            return self._end_of(asked, alone)
        for other in (alone, trouble):
            if other is not None:
                error_text.note(error, error_text.describe(other))
        return error, last_words.verdict(reports)

    def _end_of(
        self, asked: Stop | None, alone: Exception | None
    ) -> tuple[BaseException | None, Outcome]:
        """Return error and outcome where no rank is known to have deferred one."""
        if alone is not None:
            return alone, self._outcome_of(alone)
        if asked is None:
            return None, outcome.finished(step=heartbeat.last_step())
        if asked.is_resumed:
            self._ending.begin_grace()  # it may have been asked for elsewhere
            end = outcome.stopped(asked.reason, rank=asked.rank, step=asked.step)
            return SystemExit(end.exit_code), end
        if asked.kind in _FAILED:
            peer = stop_page.failure(asked.reason, asked.rank)
            return peer, self._outcome_of(peer)
        return None, outcome.finished(asked.reason, step=asked.step)

    def _outcome_of(self, error: BaseException | None) -> Outcome:
        if self._verdict is not None and self._verdict[0] is error:
            return self._verdict[1]
        if error is None:
            return outcome.finished(step=heartbeat.last_step())
        return outcome.of_error(error, rank=self._info.rank, step=heartbeat.last_step())

    def _end(self, error: BaseException | None) -> None:
        try:
            with Interrupts():
                self._handlers.ask_no_more()
                self._ending.end(self._outcome_of(error), error)
                deferred.clear()
        finally:
            self._phase.close()
            self._handlers.restore()
            _open.leave()


class _Open:
    """The run this process is in; there is one at a time."""

    __slots__ = ("later", "run")

    def __init__(self) -> None:
        self.run: Run | None = None
        self.later = False

    def enter(self, run: Run) -> None:
        """Let a run begin, once, and in no other.

        Raises:
            RuntimeError: if it cannot.
        """
        if self.run is not None or run.begun:
            which = "this one has ended" if run.begun else "this process is in one"
            raise RuntimeError(
                f"cannot enter the run, because {which} (call run once around the whole"
                " life of the training)"
            )
        self.run = run
        run.begun = True
        if self.later:  # what was asked for before the first one is asked of it
            stop.begin_anew()
        self.later = True

    def leave(self) -> None:
        """Let the next run begin."""
        self.run = None


_open = _Open()
