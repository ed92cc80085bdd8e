"""How many batches a run may drop: a count over the last attempts, and two limits.

A healthy run loses less than one batch in 10,000. More than one in 1,000 means that the
data, not luck, is bad: skipping on would only hide it. Nothing here knows of torch or
of ranks; where all ranks drop the same steps, all their budgets say the same.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

RATE_MIN_ATTEMPTS: Final = 10_000
"""Below this many attempts one drop in 10,000 is no rate: counts are told instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DropLimits:
    """How much may be dropped.

    Attributes:
        warn: share of the attempts above which a warning is due, 0 to 1.
        stop: share above which the run is to stop, 0 to 1.
        window: how many of the last attempts count.
        min_attempts: before so many attempts the run is not stopped.

    Raises:
        ValueError: if a limit cannot be one.
    """

    warn: float = 1e-4
    stop: float = 1e-3
    window: int = 10_000
    min_attempts: int = 1_000

    def __post_init__(self) -> None:
        """Refuse what cannot be a limit."""
        for name, share in (("drop_warn", self.warn), ("drop_stop", self.stop)):
            if not 0 <= share <= 1:  # also refuses nan
                raise ValueError(
                    f"cannot set {name} to {share!r}, because it is no share of the"
                    " attempts (give 0 to 1)"
                )
        if not 1 <= self.min_attempts <= self.window:
            raise ValueError(
                f"cannot set min_attempts to {self.min_attempts!r}, because it is not"
                f" from 1 to the window of {self.window!r} attempts"
            )


class Overdrawn(NamedTuple):
    """A limit was passed just now.

    Attributes:
        limit: which one.
        dropped: batches dropped among the attempts that count.
        attempts: how many attempts count.
    """

    limit: Literal["warn", "stop"]
    dropped: int
    attempts: int

    def __str__(self) -> str:
        """Say it in counts, and as a share once that means something."""
        counts = f"{self.dropped} of the last {self.attempts} batches were dropped"
        if self.attempts < RATE_MIN_ATTEMPTS:
            return counts
        return f"{counts} ({self.dropped / self.attempts:.2%})"


class DropBudget:
    """What was dropped among the last attempts, held against the limits.

    Args:
        limits: how much may be dropped.
    """

    __slots__ = ("_attempts", "_drops", "_limits", "_told")

    def __init__(self, limits: DropLimits) -> None:
        self._limits = limits
        self._attempts = 0
        self._drops: deque[int] = deque()
        self._told: set[str] = set()

    def count(self, *, dropped: bool) -> Overdrawn | None:
        """Count one attempt.

        Args:
            dropped: whether its batch was dropped.

        Returns:
            The limit that this attempt passed. "warn" comes again only after the share
            was within it in between; "stop" comes once.
        """
        self._attempts += 1
        if dropped:
            self._drops.append(self._attempts)
        while self._drops and self._drops[0] <= self._attempts - self._limits.window:
            self._drops.popleft()
        return self._judge(min(self._attempts, self._limits.window))

    def _judge(self, attempts: int) -> Overdrawn | None:
        drops = len(self._drops)
        warnable = drops > self._limits.warn * attempts
        if not warnable:
            self._told.discard("warn")
        stoppable = attempts >= self._limits.min_attempts
        if stoppable and drops > self._limits.stop * attempts:
            return self._tell("stop", drops, attempts)
        return self._tell("warn", drops, attempts) if warnable else None

    def _tell(
        self, limit: Literal["warn", "stop"], drops: int, attempts: int
    ) -> Overdrawn | None:
        if limit in self._told:
            return None
        self._told.add(limit)
        return Overdrawn(limit, drops, attempts)
