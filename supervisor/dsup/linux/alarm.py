"""Work of unknown length in a child, cut short by a timer of its own."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from typing import Final

_LEAST_S: Final = 0.001
_AGAIN_S: Final = 0.1
"""A finalizer lets no exception through: one that was raised there has interrupted
nothing, so it is raised again."""


class _LateError(Exception):
    """The time is up."""


def cut_at(until_s: float, work: Callable[[], None]) -> bool:
    """Do work until a moment; return whether it came to its end.

    It is interrupted between two steps of the interpreter, wherever that is. Only for a
    main thread that has no other use for SIGALRM, as in an aide.

    Args:
        until_s: agent clock, seconds.
        work: keeps what it has found as it goes.
    """
    waits = True

    def ring(*_: object) -> None:
        if waits:
            raise _LateError

    before = signal.signal(signal.SIGALRM, ring)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM})
    try:
        left_s = max(until_s - time.monotonic(), _LEAST_S)
        signal.setitimer(signal.ITIMER_REAL, left_s, _AGAIN_S)
        work()
    except _LateError:
        return False
    finally:
        waits = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    return True
