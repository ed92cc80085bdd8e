"""Signals that come while the main thread is in C code, where Python's handlers wait.

To join a process group, or to wait for a peer, may take minutes there, and a SIGTERM
would be without effect for so long. Python writes the number of each signal to a
descriptor at once, wherever the main thread is; a thread reads it there, and acts if
the handler has not run a second later.
"""

from __future__ import annotations

import os
import signal
from threading import Event
from typing import TYPE_CHECKING, Final

from dsup_runtime.raw_thread import LEAVE_S, RawThread

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

_ANSWER_S: Final = 1.0
_NO_SIGNAL: Final = b"\0"


class Alarm:
    """Watches for signals that nobody answers, from ``set`` to ``lift``.

    It is not there where the program has a descriptor of its own for this, as asyncio's
    event loop.

    Args:
        signals: those that are to be answered.
        on_unanswered: called once with the signal, in a thread of its own.
    """

    __slots__ = ("_answered", "_fd", "_on_unanswered", "_signals", "_watcher")

    def __init__(
        self, signals: Collection[int], on_unanswered: Callable[[int], None]
    ) -> None:
        self._signals = frozenset(signals)
        self._on_unanswered = on_unanswered
        self._answered = Event()
        self._fd = -1
        self._watcher: RawThread | None = None

    def set(self) -> None:
        """Begin to watch; only the main thread can."""
        theirs, ours = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(ours, False)
        before = signal.set_wakeup_fd(ours, warn_on_full_buffer=False)
        if before != -1:
            signal.set_wakeup_fd(before, warn_on_full_buffer=False)
            os.close(theirs)
            os.close(ours)
            return
        self._fd = ours
        self._watcher = RawThread(lambda: self._watch(theirs))

    def answered(self) -> None:
        """Note that the handler runs; safe in it."""
        self._answered.set()

    def lift(self) -> None:
        """Watch no more."""
        fd, self._fd = self._fd, -1
        if fd == -1:
            return
        self._forget(fd)
        os.write(fd, _NO_SIGNAL)
        os.close(fd)
        if self._watcher is not None:
            self._watcher.ended_within(LEAVE_S)

    def leave_to_child(self) -> None:
        """Keep a child's signals from the thread, which is its parent's."""
        fd, self._fd = self._fd, -1
        if fd != -1:
            self._forget(fd)
            os.close(fd)

    def _forget(self, fd: int) -> None:
        current = signal.set_wakeup_fd(-1)
        if current not in {fd, -1}:
            signal.set_wakeup_fd(current, warn_on_full_buffer=False)

    def _watch(self, fd: int) -> None:
        try:
            while _NO_SIGNAL not in (numbers := os.read(fd, 64)):
                known = self._signals.intersection(numbers)
                if known and not self._answered.wait(_ANSWER_S):
                    self._on_unanswered(min(known))
                    return
        finally:
            os.close(fd)
