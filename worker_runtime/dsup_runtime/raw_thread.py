"""Threads that may be started in a signal handler, and are gone before the interpreter.

``threading`` would wait there for locks that the interrupted code may hold. But a raw
thread that nobody waits for may first run when the interpreter is being taken down: it
then reads memory that is freed already, and the rank that was done ends by SIGSEGV.
"""

from __future__ import annotations

import _thread
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

LEAVE_S: Final = 5.0
"""How long a thread is waited for that has nothing to do any more: it has to be run."""


class RawThread:
    """A call in a thread of its own, begun at once.

    Args:
        call: what is done there.

    Raises:
        RuntimeError: if no thread is to be had any more.
    """

    __slots__ = ("_call", "_runs")

    def __init__(self, call: Callable[[], object]) -> None:
        self._call = call
        self._runs = _thread.allocate_lock()
        self._runs.acquire()
        _thread.start_new_thread(self._run, ())

    def ended_within(self, limit_s: float) -> bool:
        """Wait for the call's end, and return whether it came.

        Args:
            limit_s: how long to wait, seconds.
        """
        ended = self._runs.acquire(timeout=limit_s)
        if ended:
            self._runs.release()
        return ended

    def _run(self) -> None:
        try:
            self._call()
        finally:
            self._runs.release()
