"""Events of ranks that hang, or lag; ``core.events`` names them with all the others."""

from __future__ import annotations

from typing import Literal, NamedTuple


class HangSuspected(NamedTuple):
    """Ranks show no sign of life or progress; nothing is done to them.

    Attributes:
        ranks: those suspected for the strongest reason, and of them those behind.
        why: ``frozen``, ``asleep``, ``idle``, ``still``, ``silent``, ``stalled`` or
            ``waiting``.
        since_s: the last sign of any of them, agent clock, seconds.
        usual_s: the learned step time, seconds; None while there is none.
    """

    kind: Literal["hang_suspected"]
    at_s: float
    attempt: int
    ranks: tuple[int, ...]
    why: str
    since_s: float
    usual_s: float | None


class HangCleared(NamedTuple):
    """Whoever was suspected has made a step, or ended."""

    kind: Literal["hang_cleared"]
    at_s: float
    attempt: int
    ranks: tuple[int, ...]


class HangConfirmed(NamedTuple):
    """Ranks hang, which is acted upon; none is named where nobody can tell who.

    ``why`` is ``frozen``, ``asleep``, ``absent`` or ``limit``.
    """

    kind: Literal["hang_confirmed"]
    at_s: float
    attempt: int
    ranks: tuple[int, ...]
    why: str


class Captured(NamedTuple):
    """The stacks of all ranks were taken, as far as that was possible.

    Attributes:
        final: they were taken because the attempt is about to be ended.
        ranks: who did not come where all others wait; empty for nobody.
        op: the collective that the others wait in; empty if unknown.
        place: where the first of ``ranks`` is, such as ``dataset.py:88 in read``.
        taken: there are stacks; else whoever was to take them did not answer in time.
    """

    kind: Literal["captured"]
    at_s: float
    attempt: int
    final: bool
    ranks: tuple[int, ...]
    op: str
    place: str
    taken: bool = True


class Straggles(NamedTuple):
    """A rank takes ``times`` as long as its peers for a step; 0: it keeps up again.

    Nothing is done to it. ``why`` is empty where nobody knows.
    """

    kind: Literal["straggles"]
    at_s: float
    attempt: int
    rank: int
    times: float
    why: str
