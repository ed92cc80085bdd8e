"""What the ranks tell each other before they part: deferred errors, and wishes to stop.

The first error of the run is the one of the lowest step, then of the lowest rank. A
stop that no check has decided, because the loop had come to its end when it was asked
for, is decided here: all ranks end as that one would have them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from dsup_runtime import deferred, error_text, side_group
from dsup_runtime.contract import STOP_KINDS
from dsup_runtime.errors import PeerError
from dsup_runtime.lifecycle import outcome
from dsup_runtime.stop import Stop

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dsup_runtime.lifecycle.outcome import Outcome

_TOLD_MAX: Final = 8
_TEXT_MAX_CHARS: Final = 1000


class Report(NamedTuple):
    """One deferred error, as another rank can know it.

    Attributes:
        rank: whose it is.
        where: what that rank was doing.
        type: the exception's class.
        message: its text.
        step: the last step of that rank then; None if there was none.
    """

    rank: int
    where: str
    type: str
    message: str
    step: int | None

    def __str__(self) -> str:
        """Return all of it in words."""
        step = "" if self.step is None else f", step {self.step}"
        return f"rank {self.rank}{step}, in {self.where}: {self.error}"

    @property
    def error(self) -> str:
        """Type and text."""
        return f"{self.type}: {self.message}"


def own(rank: int) -> list[Report]:
    """Return this rank's errors, the earliest eight, in the order they came."""
    return [
        Report(
            rank,
            error_text.text_of(kept.where)[:_TEXT_MAX_CHARS],
            error_text.name_of(kept.error),
            error_text.text_of(kept.error)[:_TEXT_MAX_CHARS],
            kept.step,
        )
        for kept in deferred.all_kept()[:_TOLD_MAX]
    ]


def exchange(
    reports: Sequence[Report], wish: Stop | None, *, agreed: bool, timeout_s: float
) -> tuple[list[Report], Stop | None]:
    """Return every rank's reports, the first of the run first, and the stop for all.

    Args:
        reports: this rank's.
        wish: the stop that this rank knows or wants.
        agreed: whether a check has decided it; then it goes before what is wanted.
        timeout_s: how long to wait for the others, seconds.

    Raises:
        PeerError: if a rank does not take part in time, or has gone.
    """
    if wish is not None:  # its step is as the script gave it
        wish = wish._replace(step=outcome.whole(wish.step) or 0)
    if side_group.size() == 1:
        return list(reports), wish
    mine = [list(reports), wish, agreed]
    told = side_group.exchange(mine, timeout_s=timeout_s)
    return in_order(
        Report(rank, *each[1:]) for rank, (many, *_) in enumerate(told) for each in many
    ), greatest((Stop(*stop), first) for _, stop, first in told if stop)


def greatest(stops: Iterable[tuple[Stop, bool]]) -> Stop | None:
    """Return the stop for all: a decided one, else of the greatest kind and least rank.

    Args:
        stops: those known or wanted, by rank, and whether each was decided.
    """
    ordered = max(
        stops, key=lambda each: (each[1], STOP_KINDS.index(each[0].kind)), default=None
    )
    return ordered[0] if ordered is not None else None


def in_order(reports: Iterable[Report]) -> list[Report]:
    """Return reports in the order of their steps, then of their ranks."""
    return sorted(reports, key=_order)


def to_raise(reports: Sequence[Report], rank: int) -> Exception | None:
    """Return what this rank is to raise, and forget its deferred errors.

    Args:
        reports: everyone's, in order.
        rank: this one.

    Returns:
        This rank's own first error, the object itself; PeerError if only others have
        any; None if nobody has. What else is known is in its notes.
    """
    mine = deferred.first()
    told = next(iter(own(rank)), None)
    deferred.clear()
    if mine is not None:
        error = mine.error
        rest = [each for each in reports if each != told]
    elif reports:
        first, rest = reports[0], list(reports[1:])
        error = PeerError(
            f"cannot go on, because {first} (this rank is healthy: look at that one)",
            ranks=[first.rank],
        )
    else:
        return None
    for each in rest:
        error_text.note(error, f"also deferred: {each}")
    return error


def verdict(reports: Sequence[Report]) -> Outcome:
    """Return the outcome that deferred errors mean, the same on every rank.

    Args:
        reports: everyone's, in order; at least one.
    """
    first = reports[0]
    return outcome.Outcome(
        "FAILED",
        outcome.EXIT_FAILED,
        reason=f"deferred error in {first.where}",
        error=first.error,
        rank=first.rank,
        step=first.step,
    )


def _order(report: Report) -> tuple[bool, int, int]:
    return report.step is None, report.step or 0, report.rank
