"""The time between a request to stop and the kill: what is left of it, and its end."""

from __future__ import annotations

import _thread
import os
from time import monotonic
from typing import TYPE_CHECKING, Final

from dsup_runtime.lifecycle.outcome import EXIT_STOPPED
from dsup_runtime.raw_thread import LEAVE_S, RawThread

if TYPE_CHECKING:
    from collections.abc import Callable

_RESERVE_MAX_S: Final = 5.0
_RESERVE_SHARE: Final = 0.2
_KEPT_SHARE: Final = 0.25


class Grace:
    """A limit that begins with the first request to stop, and acts if it is passed.

    It acts a fifth of the time (5 s at most) before the kill is due, so that what it
    does comes in time. When the time is over the process ends, whatever it is at.

    Args:
        on_expiry: called in a thread of its own.
    """

    __slots__ = ("_kill_s", "_on_expiry", "_over", "_reserve_s", "_watcher")

    def __init__(self, on_expiry: Callable[[], None]) -> None:
        self._on_expiry = on_expiry
        self._kill_s: float | None = None
        self._reserve_s = 0.0
        self._watcher: RawThread | None = None
        self._over = _thread.allocate_lock()
        self._over.acquire()

    def begin(self, grace_s: float) -> None:
        """Start the time, if it does not run already; safe in a signal handler.

        Args:
            grace_s: from now until the kill, seconds.
        """
        if self._kill_s is None:
            self._reserve_s = max(0.0, min(_RESERVE_MAX_S, grace_s * _RESERVE_SHARE))
            self._kill_s = monotonic() + grace_s
            until_s = max(0.0, grace_s - self._reserve_s)
            self._watcher = RawThread(lambda: self._watch(until_s))

    def left_s(self, otherwise_s: float) -> float:
        """Return how long something may take, at most ``otherwise_s``, seconds.

        A little is kept back, to say that it took too long.
        """
        if self._kill_s is None:
            return otherwise_s
        end_s = self._kill_s - self._reserve_s * _KEPT_SHARE
        return max(0.0, min(otherwise_s, end_s - monotonic()))

    def end(self) -> None:
        """Let nothing happen at the end of the time; call it once."""
        self._over.release()
        if self._watcher is not None:
            self._watcher.ended_within(LEAVE_S)

    def _watch(self, until_s: float) -> None:
        if self._over.acquire(timeout=until_s):
            return
        self._on_expiry()
        if not self._over.acquire(timeout=self._reserve_s):
            os._exit(EXIT_STOPPED)
