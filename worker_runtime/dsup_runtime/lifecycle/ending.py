"""The last things of a run on this rank, in order, each within a limit, once.

The agent is told, the groups are destroyed, the outcome is written down, the reporter
is finished. The same is done, without the groups, for a process that was asked to stop
and does not come to its end: half a checkpoint is none, and the kill would be silent.
"""

from __future__ import annotations

import os
import sys
import threading
import traceback
from contextlib import suppress
from time import monotonic_ns
from typing import TYPE_CHECKING, Final

from dsup_runtime import (
    barriers,
    contract,
    deferred,
    error_text,
    heartbeat,
    raised_note,
    stop,
)
from dsup_runtime.bounded import BoundedCall
from dsup_runtime.lifecycle import groups, outcome, records
from dsup_runtime.lifecycle.grace import Grace
from dsup_runtime.lifecycle.reporting import FINISH_MAX_S, Reporting
from dsup_runtime.rank_log import log
from dsup_runtime.raw_thread import RawThread

if TYPE_CHECKING:
    from dsup_runtime.lifecycle.outcome import Outcome
    from dsup_runtime.lifecycle.reporting import Reporter
    from dsup_runtime.worker_info import Info

_WRITE_MAX_S: Final = 5.0
_FLUSH_MAX_S: Final = 1.0
_GIVE_UP_MAX_S: Final = 1.0


class Ending:
    """What a run needs for its end, from its beginning on.

    Args:
        info: who this rank is.
        reporter: the run's tracker, used on the main rank.
    """

    def __init__(self, info: Info, reporter: Reporter | None) -> None:
        self._info = info
        self._reporting = Reporting(reporter if info.is_main else None)
        self._grace = Grace(self.expire)
        self._once = threading.Lock()
        self._told: Outcome | None = None

    def start(self) -> None:
        """Start the reporter."""
        self._reporting.start(self._info)

    def begin_grace(self) -> None:
        """Let the time until the kill run; safe in a signal handler."""
        self._grace.begin(_grace_s(self._info))

    def left_s(self, otherwise_s: float) -> float:
        """Return what is left of that time, at most ``otherwise_s``, seconds."""
        return self._grace.left_s(otherwise_s)

    def end(self, result: Outcome, error: BaseException | None) -> None:
        """Do the last things.

        Args:
            result: how the run ended.
            error: what goes on to be raised; None if nothing is.

        Raises:
            KeyboardInterrupt: if it was told not to wait for the end of a success.
        """
        if not self._once.acquire(blocking=False):
            threading.Event().wait()  # the grace is over, and its thread ends us
        try:
            if isinstance(error, Exception):
                raised_note.tell(error)
            if result.exit_code == outcome.EXIT_FAILED or result.status == "FAILED":
                heartbeat.tell_failure(own=result.rank == self._info.rank)
            self._tell(result)
            if error is not None:
                barriers.give_up()  # who waits in one learns of it there alone
            trouble = groups.cut_off(self.left_s(groups.DESTROY_MAX_S))
            if trouble is not None:
                log.warning("%s", error_text.describe(trouble))
            self._put_down(result, error)
        except KeyboardInterrupt as again:
            if error is not None:  # that ends the process too, as it was told
                self._hurry(result, error)
                return
            self._hurry(self._of(again), again)
            raise
        finally:
            self._grace.end()

    def _put_down(self, result: Outcome, error: BaseException | None) -> None:
        """Write the outcome for those who come after, then finish the reporter."""
        call = BoundedCall(
            lambda: records.put_down(result, error, self._info),
            name="dsup-outcome",
        )
        if not call.ended_within(self.left_s(_WRITE_MAX_S)):
            log.error("cannot wait longer for the outcome to be written")
        elif call.error is not None:
            log.error("cannot write the outcome", exc_info=call.error)
        asked = stop.agreed()
        events = {} if asked is None else {"stop": asked._asdict()}
        self._reporting.finish(result, events, self.left_s(FINISH_MAX_S))

    def expire(self) -> None:
        """End a process that does not stop before it would be killed."""
        if not self._once.acquire(blocking=False):
            return  # it ends already: it has what is left of the time
        log.error("cannot stop in time, because the main thread is here:\n%s", _where())
        result, error = self._cut_short("not stopped in time")
        self._tell(result)
        self._put_down(result, error)
        BoundedCall(_flush, name="dsup-flush").ended_within(_FLUSH_MAX_S)
        os._exit(result.exit_code)

    def give_up(self) -> None:
        """Put down that a signal ends the process now; to be called in its handler."""
        if self._told is None or self._told.status == "FINISHED":
            outcome.mark_ended()
            self._hurry(*self._cut_short("told to end at once"))

    def _cut_short(self, reason: str) -> tuple[Outcome, BaseException | None]:
        """Return how a run ends that does not come to its end, and why it failed."""
        first, lost = deferred.first(), stop.ended()
        if first is not None:
            rank = self._info.rank
            failed = outcome.of_error(first.error, rank=rank, step=first.step)
            return failed, first.error
        if lost is not None:
            return self._of(lost), lost
        return outcome.stopped(reason, step=heartbeat.last_step()), None

    def _of(self, error: BaseException) -> Outcome:
        step = heartbeat.last_step()
        return outcome.of_error(error, rank=self._info.rank, step=step)

    def _tell(self, result: Outcome) -> None:
        self._told = result
        records.tell(result)

    def _hurry(self, result: Outcome, error: BaseException | None) -> None:
        """Tell and write an outcome within a second; safe in a signal handler."""

        def write() -> None:
            with suppress(Exception):
                records.put_down(result, error, self._info)

        self._tell(result)
        with suppress(RuntimeError):  # no thread is to be had any more
            RawThread(write).ended_within(_GIVE_UP_MAX_S)


def _grace_s(info: Info) -> float:
    """Return how long it is until the kill, now that a stop was asked for, seconds."""
    page = heartbeat.own_page()
    until_ns = 0 if page is None else page.words[contract.HEADER_STOP_DEADLINE_NS]
    return (until_ns - monotonic_ns()) / 1e9 if until_ns else info.grace_s


def _where() -> str:
    """Return the main thread's stack, as text."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)  # noqa: SLF001
    return "".join(traceback.format_stack(frame))


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
