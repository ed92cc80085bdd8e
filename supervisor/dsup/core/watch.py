"""What is remembered of the ranks of an attempt while they are watched. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, NamedTuple, TypeAlias, get_args

from dsup.core import activity
from dsup.core.activity import Active
from dsup.core.limits import Limits
from dsup.core.patience import outlasts_s
from dsup.core.pulse import Pulse

Kind: TypeAlias = Literal[
    "frozen", "asleep", "idle", "still", "silent", "stalled", "waiting"
]
"""State T; state D; of ranks that tell nothing, those that ``stillness`` has found; no
heartbeat; heartbeats but no step; no step for long while another evaluates or saves."""

BY_STATE: Final = frozenset({"frozen", "asleep"})
FOR_PEOPLE: Final = frozenset({"idle", "still", "waiting"})
"""Nothing is done on these, whatever stacks show."""


class Suspicion(NamedTuple):
    """A rank that is suspected to hang.

    Attributes:
        since_s: when its last sign of life or progress was.
        limit_s: what it has outlasted, seconds.
    """

    rank: int
    kind: Kind
    since_s: float
    limit_s: float
    phase: str = ""
    step: int | None = None


class Absence(NamedTuple):
    """What stacks have shown: these ranks did not come where all others wait.

    Attributes:
        ranks: who did not come.
        since_s: since when that is so.
        place: where the first of them is.
        seen_s: when stacks have last shown it; nothing has moved in between.
    """

    ranks: tuple[int, ...]
    since_s: float
    place: str = ""
    seen_s: float = 0.0


class Finding(NamedTuple):
    """News for the state machine.

    Attributes:
        ranks: whom it is about, those suspected for the strongest reason.
    """

    kind: Literal["suspected", "cleared", "confirmed"]
    ranks: tuple[int, ...]
    why: str
    suspicions: tuple[Suspicion, ...] = ()


class Watch(NamedTuple):
    """Everything that is remembered of an attempt.

    Attributes:
        suspected: by rank.
        still: who does nothing, of ranks that tell nothing; see ``stillness``.
        absent: what the last stacks have shown; None where nobody was missing.
        confirmed: it was said; there is nothing more to say until that has passed.
        active: when ranks were last seen at work, as far as that is known.
        left: a rank has ended; with exit 0, since any other end ends the watch.
    """

    limits: Limits = Limits()
    pulses: Mapping[int, Pulse] = {}
    suspected: Mapping[int, Suspicion] = {}
    still: Mapping[int, Suspicion] = {}
    absent: Absence | None = None
    confirmed: bool = False
    active: Mapping[int, Active] = {}
    left: bool = False

    @property
    def for_people(self) -> bool:
        """Whether nothing is ever done on what is suspected."""
        return all(s.kind in FOR_PEOPLE for s in self.suspected.values())

    def outlasts_s(self, rank: int, strain: float) -> float | None:
        """Return when a rank has outlasted its limit, agent clock; None for never.

        Args:
            rank: one that was looked at.
            strain: by what the node's overload stretches everything.
        """
        active_s = activity.last_s(self.active, rank)
        one = self.pulses[rank]
        return outlasts_s(one, self.limits, active_s, strain, left=self.left)


def strongest(suspected: Mapping[int, Suspicion]) -> list[Suspicion]:
    """Return those suspected for the strongest reason, of stalled ones those behind."""
    order = get_args(Kind)
    kind = min((s.kind for s in suspected.values()), key=order.index)
    alike = [s for _, s in sorted(suspected.items()) if s.kind == kind]
    if kind in BY_STATE:
        return alike
    least = min(-1 if s.step is None else s.step for s in alike)
    return [s for s in alike if (-1 if s.step is None else s.step) == least]
