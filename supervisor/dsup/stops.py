"""The agent's half of a stop that ranks come to by themselves: it is all on the page.

What the ranks say there is looked at in every turn: a note is only the doorbell, and
may be lost. What the machine decides is stored there, and no rank has to answer.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol, TypeAlias, assert_never, cast

from dsup.core import commands as cmd
from dsup.core import events as ev
from dsup.core import stopping
from dsup.core.state import Stage, State
from dsup.edges.heartbeats import Page
from dsup_runtime import contract

Order: TypeAlias = cmd.FreezePage | cmd.CountChecks | cmd.PublishStop


class Held(Protocol):
    """What is needed of the attempt at hand."""

    page: Page | None


class Stops:
    """Sees who stops itself and who wants a stop; freezes, counts and publishes.

    Args:
        attempt: has the page.
        post: takes the events that come of it.
    """

    def __init__(self, attempt: Held, post: Callable[[ev.Event], None]) -> None:
        self._attempt = attempt
        self._post = post

    def newly_self_stopping(self, state: State) -> ev.SelfStopping | None:
        """Return which ranks stop themselves that were not known to; None for none.

        A signal, or a note, of the same moment is to be answered in the light of it.
        """
        page = self._page(state)
        if page is None or state.alive <= state.self_stopping:
            return None
        new = tuple(sorted(page.self_stopping() - state.self_stopping))
        now_s, number = time.monotonic(), state.attempt
        return ev.SelfStopping("self_stopping", now_s, number, new) if new else None

    def look(self, state: State) -> None:
        """Tell of a greater wish on the page than any that the state knows of."""
        page, parking = self._page(state), state.parking
        if page is None or (parking is not None and parking.check is not None):
            return
        wanted = page.wanted()
        kind = max(wanted.values(), default=0)
        known = stopping.weight(parking) if parking else 0
        if kind > known:
            rank = min(rank for rank, wish in wanted.items() if wish == kind)
            now_s, number = time.monotonic(), state.attempt
            word = cast("ev.StopKind", contract.STOP_KINDS[kind])
            wish = ev.StopWanted("stop_wanted", now_s, number, rank, word, "", None)
            self._post(wish)

    def carry_out(self, order: Order) -> None:
        """Do what the machine wants to be done with the page."""
        page = self._attempt.page
        if page is None:
            return
        match order:
            case cmd.FreezePage():
                page.freeze(order.until_s)
            case cmd.CountChecks():
                last = stopping.last_check(page.checks())
                now_s = time.monotonic()
                number = order.attempt
                self._post(ev.ChecksCounted("checks_counted", now_s, number, last))
            case cmd.PublishStop():
                page.publish(order.check, order.stop, order.rank, order.reason)
            case _:
                assert_never(order)

    def _page(self, state: State) -> Page | None:
        looks = state.stage in {Stage.RUNNING, Stage.PARKING}
        return self._attempt.page if looks else None
