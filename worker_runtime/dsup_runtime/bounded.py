"""Calls that may never come back: each in a thread of its own, waited for a while."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class BoundedCall:
    """A call that runs beside the caller, who waits for it as long as he can afford.

    Attributes:
        error: what the call raised, None where it returned or still runs.
    """

    __slots__ = ("_ended", "error")

    def __init__(self, call: Callable[[], object], *, name: str) -> None:
        self.error: BaseException | None = None
        self._ended = threading.Event()
        try:
            threading.Thread(
                target=self._run, args=(call,), name=name, daemon=True
            ).start()
        except RuntimeError as error:  # no thread is to be had any more
            self.error = error
            self._ended.set()

    def _run(self, call: Callable[[], object]) -> None:
        try:
            call()
        except BaseException as error:  # noqa: BLE001 (whoever waits judges it)
            self.error = error
        finally:
            self._ended.set()

    def ended_within(self, limit_s: float) -> bool:
        """Wait for the call's end, and return whether it came.

        Args:
            limit_s: how long to wait, seconds; 0 only looks.
        """
        return self._ended.wait(max(limit_s, 0))
