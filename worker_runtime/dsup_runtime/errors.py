"""What the runtime raises, by whose fault it is.

    RuntimeFault             all of them
    ├── PeerError            another rank failed, or did not take part in time
    ├── BarrierTimeout       a barrier's time was over; names the ranks that miss it
    ├── CollectiveInDefer    a deferred block talked to other ranks
    ├── NumericsError        the numbers stay bad, rollbacks or not
    ├── DropBudgetExceeded   more batches were dropped than a run may lose
    ├── NoValidCheckpoint    there is nothing to resume from, and there had to be
    └── CheckpointError      a checkpoint could not be written, published or looked for

Wrong arguments are a ``ValueError`` or ``TypeError``, as everywhere. Messages say what
cannot be done, because of what, and what to do.
"""

from __future__ import annotations

TYPE_CHECKING = False  # the agent's scan imports this: typing would be half its cost
if TYPE_CHECKING:
    from collections.abc import Sequence


class RuntimeFault(Exception):  # noqa: N818 (a fault of the run, not of a call)
    """The run cannot go on as it is."""


class PeerError(RuntimeFault):
    """Another rank failed, or did not take part in time; this one is healthy.

    Attributes:
        ranks: global ranks it is about, ascending; empty where nobody can tell.
    """

    def __init__(self, message: str, *, ranks: Sequence[int] = ()) -> None:
        super().__init__(message)
        self.ranks = tuple(sorted(ranks))


class BarrierTimeout(RuntimeFault):
    """Not every rank came to a barrier in time.

    Attributes:
        name: the barrier's.
        missing: global ranks that did not come, ascending.
        waited_s: how long this rank waited, seconds.
        deaths: ranks of those missing that dsup knows to have ended; empty without it.
    """

    def __init__(
        self,
        name: str,
        *,
        missing: Sequence[int],
        waited_s: float,
        deaths: Sequence[int] = (),
    ) -> None:
        self.name = name
        self.missing = tuple(sorted(missing))
        self.waited_s = waited_s
        self.deaths = tuple(sorted(deaths))
        super().__init__(self._message())

    def _message(self) -> str:
        late = sorted(set(self.missing) - set(self.deaths))
        because, advice = [], "look at the output of that rank"
        if self.deaths:
            because.append(f"rank {', '.join(map(str, self.deaths))} has ended")
        if late or not self.deaths:
            absent = ", ".join(map(str, late)) or "unknown"
            because.append(f"rank {absent} did not come within {self.waited_s:.1f} s")
            advice += ", or give it more time"
        why = " and ".join(because)
        return f"cannot pass barrier {self.name!r}, because {why} ({advice})"


class CollectiveInDefer(RuntimeFault):
    """A block whose errors are deferred talked to the other ranks."""


class NumericsError(RuntimeFault):
    """Loss or gradients stay non-finite, and nothing is left to roll back to."""


class DropBudgetExceeded(RuntimeFault):
    """More batches were dropped than the data of a healthy run would cost."""


class NoValidCheckpoint(RuntimeFault):
    """No checkpoint is whole, though one had to be there."""


class CheckpointError(RuntimeFault):
    """A checkpoint could not be written, published or looked for."""
