"""How all ranks meet in the store of their process group, and learn who did not come.

A barrier's ranks write down that they have come, and then read one key: the outcome. It
is decided once, by the last rank that comes, or else by the first one that will wait no
longer; so all ranks pass or none does, and all name the same ranks. Nothing but the
store is used, so that it works whatever the group's backend is.

Barriers are numbered in the order in which a rank comes to them, whatever their names:
so a rank that is at another barrier than the others is found at once.

Not covered: a rank that leaves out a barrier and comes to the next one of that name.
"""

from __future__ import annotations

import json
from time import monotonic, sleep
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch.distributed.distributed_c10d import Store

_LINGER_S: Final = 0.5
_PAUSE_MIN_S: Final = 0.0002
_PAUSE_MAX_S: Final = 0.05
_PAUSE_SHARE: Final = 0.1
_SHARED: Final = ("name", "count", "outcome", "left")


class Outcome(NamedTuple):
    """What became of a barrier, the same on every rank; all empty: it was passed.

    Attributes:
        missing: ranks that did not come, ascending.
        deaths: those of them that have ended, as far as whoever decided it knew.
        strayed: a rank that came to another barrier than the first one did.
        names: the first rank's barrier, and that of ``strayed``.
    """

    missing: tuple[int, ...] = ()
    deaths: tuple[int, ...] = ()
    strayed: int | None = None
    names: tuple[str, ...] = ()


class Meeting:
    """One barrier in the store, as one rank sees it. Any call may wait for the store.

    Args:
        store: of the process group.
        place: what the keys of all barriers of this attempt begin with.
        number: how many barriers came before.
        rank: this rank.
        world_size: how many ranks have to come.

    Attributes:
        rank: this rank.
    """

    def __init__(
        self, store: Store, place: str, number: int, *, rank: int, world_size: int
    ) -> None:
        self._store = store
        self._place = place
        self._number = number
        self.rank = rank
        self._ranks = range(world_size)

    def arrive(self, name: str) -> None:
        """Write down that this rank has come; the last one decides."""
        store = self._store
        store.set(self._came(self.rank), "")
        other = store.compare_set(self._key("name"), "", name).decode()
        if other != name:
            self.decide(Outcome(strayed=self.rank, names=(other, name)))
        elif store.add(self._key("count"), 1) == len(self._ranks):
            self.decide(Outcome())

    def outcome(self) -> Outcome | None:
        """Return what was decided; None as long as nothing was."""
        key = self._key("outcome")
        return _decode(self._store.get(key)) if self._store.check([key]) else None

    def decide(self, outcome: Outcome) -> Outcome:
        """Decide, unless it is decided; return what is."""
        told = json.dumps(outcome)
        return _decode(self._store.compare_set(self._key("outcome"), "", told))

    def give_up(self) -> None:
        """Say that this rank comes to no meeting of this place any more."""
        self._store.set(self._gone(self.rank), "")
        self._store.set(self._gone("any"), "")

    def given_up(self) -> list[int]:
        """Return the ranks that have said so, ascending."""
        if not self._store.check([self._gone("any")]):
            return []
        return [rank for rank in self._ranks if self._store.check([self._gone(rank)])]

    def missing(self, among: Iterable[int] | None = None) -> tuple[int, ...]:
        """Return the ranks that have not come, of all or of those given."""
        return tuple(self._absent(sorted(self._ranks if among is None else among)))

    def leave(self, outcome: Outcome) -> None:
        """Say that this rank knows the outcome, and remove what the last one left.

        Rank 0 goes last, within half a second: as a rule the store ends with it.
        """
        if outcome == Outcome() and self._number:
            self._remove_previous()
        left = self._store.add(self._key("left"), 1)
        until_s = monotonic() + (_LINGER_S if self.rank == 0 else 0)
        others = len(self._ranks) - len(outcome.missing)
        while left < others and monotonic() < until_s:
            sleep(_PAUSE_MIN_S)
            left = self._store.add(self._key("left"), 0)

    def _remove_previous(self) -> None:
        """Remove the keys of the barrier before; all ranks are beyond it."""
        before = self._number - 1
        self._store.delete_key(self._key(f"came/{self.rank}", before))
        if self.rank == 0:
            for what in _SHARED:
                self._store.delete_key(self._key(what, before))

    def _absent(self, ranks: list[int]) -> list[int]:
        """Return which ranks have not come; halving, for most of them have."""
        if not ranks or self._store.check([self._came(rank) for rank in ranks]):
            return []
        if len(ranks) == 1:
            return ranks
        half = len(ranks) // 2
        return self._absent(ranks[:half]) + self._absent(ranks[half:])

    def _gone(self, who: int | str) -> str:
        return f"{self._place}/gone/{who}"

    def _came(self, rank: int) -> str:
        return self._key(f"came/{rank}")

    def _key(self, what: str, number: int | None = None) -> str:
        number = self._number if number is None else number
        return f"{self._place}/{number}/{what}"


def pause_s(waited_s: float) -> float:
    """Return how long to wait until the store is asked again, seconds.

    Args:
        waited_s: how long this rank has waited, seconds.
    """
    return min(_PAUSE_MAX_S, max(_PAUSE_MIN_S, waited_s * _PAUSE_SHARE))


def _decode(told: bytes) -> Outcome:
    missing, deaths, strayed, names = json.loads(told)
    return Outcome(tuple(missing), tuple(deaths), strayed, tuple(names))
