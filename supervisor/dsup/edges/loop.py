"""The agent's one loop: descriptors and their handlers, in the order of readiness."""

from __future__ import annotations

import select
import time
from collections.abc import Callable

from dsup.core.state import NEVER


class Loop:
    """An epoll instance, level-triggered.

    Its ready list keeps the order in which descriptors became ready, so handlers of
    ranks' pidfds are called in the order in which the ranks ended.

    Attributes:
        late_s: what became ready in this turn may have done so up to this much
            before, seconds.
    """

    def __init__(self) -> None:
        self.late_s = 0.0
        self._epoll = select.epoll()
        self._handlers: dict[int, Callable[[], None]] = {}
        self._turned_s = time.monotonic()

    def watch(
        self, fd: int, handler: Callable[[], None], events: int = select.EPOLLIN
    ) -> None:
        """Call ``handler`` in every turn in which ``fd`` is ready."""
        if fd in self._handlers:
            self._epoll.modify(fd, events)
        else:
            self._epoll.register(fd, events)
        self._handlers[fd] = handler

    def unwatch(self, fd: int) -> None:
        """Forget a descriptor, before it is closed."""
        if self._handlers.pop(fd, None):
            self._epoll.unregister(fd)

    def turn(self, until_s: float) -> float:
        """Wait until something is ready or a time has come, and call the handlers.

        Args:
            until_s: agent clock, seconds; at most that long.

        Returns:
            By how much the loop woke too late, seconds.
        """
        began_s = time.monotonic()
        wait_s = max(0.0, until_s - began_s)
        ready = [
            (fd, self._handlers.get(fd))
            for fd, _ in self._epoll.poll(None if wait_s == NEVER else wait_s)
        ]
        now_s = time.monotonic()
        # Counted from the turn before: the process may have been stopped anywhere.
        overdue_s = max(0.0, now_s - self._turned_s - wait_s)
        self.late_s = max(overdue_s, began_s - self._turned_s)
        self._turned_s = now_s
        for fd, handler in ready:
            # One before it may have dropped the descriptor, and its number may be that
            # of another by now.
            if handler and handler is self._handlers.get(fd):
                handler()
        return overdue_s
