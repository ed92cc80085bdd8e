"""What the ranks of an attempt have left behind: looked for until there is nothing."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from dsup.core import events as ev
from dsup.core.state import Stage, State
from dsup.edges import group
from dsup.linux import tree


class Children(Protocol):
    """Children of the agent that are no leftovers; who they are is asked seldom."""

    @property
    def spared(self) -> set[int]:
        """Those that are not the ranks' doing."""

    @property
    def owned(self) -> set[int]:
        """Those whose exit status somebody waits for, the ranks included."""


class Leftovers:
    """Tells of helpers that outlive the ranks, kills them, proves that none is left.

    Args:
        post: takes the events that come of it.
    """

    def __init__(self, post: Callable[[ev.Event], None]) -> None:
        self._post = post
        self._told_of = -1

    def look(self, state: State, children: Children) -> bool:
        """Look, where the stage is one for it; return whether there is news.

        Args:
            state: what is known of the ranks.
            children: of the agent.
        """
        terminating = state.stage is Stage.TERMINATING and not state.alive
        if not terminating and state.stage is not Stage.KILLING:
            return False
        spared, owned = children.spared, children.owned
        names, total = group.helpers_left(spared, owned)
        now_s, number = time.monotonic(), state.attempt
        if total == 0 and not owned - spared:
            self._post(ev.GroupEmpty("group_empty", now_s, number))
            return True
        if state.stage is Stage.KILLING:
            tree.kill(spared, owned=owned)
            return False
        if self._told_of == number or not state.succeeded:
            return False
        self._told_of = number
        self._post(ev.HelpersLeft("helpers_left", now_s, number, names, total))
        return True
