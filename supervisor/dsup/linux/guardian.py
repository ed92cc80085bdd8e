"""What the agent knows of the guard it was forked from."""

from __future__ import annotations

from typing import NamedTuple


class Guardian(NamedTuple):
    """The guard, seen from its child.

    Attributes:
        pidfd: readable once the guard has gone.
        spared: one word that both share: the pid of the child that is to outlive a
            killed agent (the scribe writes the ranks' last words down); 0 for none.
    """

    pidfd: int
    spared: memoryview
