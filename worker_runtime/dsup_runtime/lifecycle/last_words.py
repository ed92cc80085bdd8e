"""What the ranks tell each other before they part: the errors that each has deferred.

The first of the run is the one of the lowest step, then of the lowest rank.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from dsup_runtime import deferred, side_group
from dsup_runtime.errors import PeerError
from dsup_runtime.lifecycle import outcome

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
            kept.where[:_TEXT_MAX_CHARS],
            type(kept.error).__name__,
            outcome.text_of(kept.error)[:_TEXT_MAX_CHARS],
            kept.step,
        )
        for kept in deferred.all_kept()[:_TOLD_MAX]
    ]


def exchange(reports: Sequence[Report], *, timeout_s: float) -> list[Report]:
    """Return every rank's reports, the first of the run first.

    Args:
        reports: this rank's.
        timeout_s: how long to wait for the others, seconds.

    Raises:
        PeerError: if a rank does not take part in time, or has gone.
    """
    told = side_group.exchange(list(reports), timeout_s=timeout_s)
    if len(told) == 1:
        return list(reports)
    return in_order(
        Report(rank, *each[1:]) for rank, many in enumerate(told) for each in many
    )


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
        error.add_note(f"also deferred: {each}")
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
