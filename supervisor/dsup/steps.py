"""How far the ranks are, told to the journal: now and then, and when a rank ends.

A look at the page costs microseconds, so there is one a second; what it shows becomes
an event once an attempt, for its first step, and then once a minute.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from dsup.core import events as ev
from dsup.core.state import Stage, State

if TYPE_CHECKING:
    from dsup.stops import Held

LOOK_S: Final = 1.0
EVERY_S: Final = 60.0
"""A run that lasts a month has 43,000 such events, 4 MB of its journal."""


class Steps:
    """Tells of steps.

    Args:
        attempt: has the page.
        post: takes the events that come of it.
    """

    def __init__(self, attempt: Held, post: Callable[[ev.Event], None]) -> None:
        self._attempt = attempt
        self._post = post
        self._look_s = 0.0
        self._told: tuple[int, int | None, float] = (-1, None, 0.0)

    def look(self, state: State, now_s: float) -> None:
        """Tell of an attempt's first step, and of its last one a minute later.

        Args:
            state: how the run stands.
            now_s: the present, agent clock, seconds.
        """
        if now_s < self._look_s or state.stage is not Stage.RUNNING:
            return
        self._look_s = now_s + LOOK_S
        attempt, _, told_s = self._told
        if attempt != state.attempt or now_s >= told_s + EVERY_S:
            self._tell(state.attempt, now_s)

    def ended(self, state: State) -> None:
        """Tell how far all ranks are, now that one has ended.

        Args:
            state: how the run stands.
        """
        now_s, number = time.monotonic(), state.attempt
        step, best = self._tell(number, now_s), state.best_step
        if step is not None and (best is None or step > best):
            self._post(ev.Progressed("progressed", now_s, number, step))

    def _tell(self, number: int, now_s: float) -> int | None:
        """Tell of the last step, unless it was told, and return it."""
        page = self._attempt.page
        finished = page.finished() if page else None
        if finished is None:
            return None
        step, made_s = finished
        if self._told[:2] != (number, step):
            self._told = number, step, now_s
            made_s = made_s if 0 < made_s <= now_s else now_s
            self._post(ev.Stepped("stepped", now_s, number, step, made_s))
        return step
