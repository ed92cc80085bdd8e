"""Ctrl-C while a run is being ended: the end is told before the process goes.

A KeyboardInterrupt in the middle of it would leave a tracker that says nothing, or a
success that ends with 130. What is done there is bounded, so it may wait; and whoever
presses it again does not want to wait.
"""

from __future__ import annotations

import signal
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Self

from dsup_runtime.rank_log import log

if TYPE_CHECKING:
    from types import FrameType


class Interrupts:
    """A context in which the first SIGINT does nothing, the second what it always does.

    A handler of the script's own stays as it is, and other threads have none.
    """

    __slots__ = ("_again",)

    def __init__(self) -> None:
        self._again = False

    def __enter__(self) -> Self:
        """Take SIGINT over from Python's own handler."""
        main = threading.current_thread() is threading.main_thread()
        if main and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, self._put_off)
        return self

    def __exit__(self, *_raised: object) -> None:
        """Give it back, unless it has got another handler."""
        if signal.getsignal(signal.SIGINT) == self._put_off:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def _put_off(self, signum: int, frame: FrameType | None) -> None:
        if self._again:
            signal.default_int_handler(signum, frame)
        self._again = True
        with suppress(Exception):  # it may have come within a write to the same stream
            log.warning(
                "cannot interrupt the run, because it is ending (a second Ctrl-C does)"
            )
