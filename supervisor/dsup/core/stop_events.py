"""Events of a stop that somebody wants; ``core.events`` names them with all others."""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

StopKind: TypeAlias = Literal["user", "limit", "preempt", "peer", "error"]
"""A word of ``contract.STOP_KINDS``, but for ``none``."""


class SelfStopping(NamedTuple):
    """Ranks that were not known for it ask at every step whether to stop."""

    kind: Literal["self_stopping"]
    at_s: float
    attempt: int
    ranks: tuple[int, ...]


class StopWanted(NamedTuple):
    """A rank wants the attempt to stop, for all ranks at the same step.

    Attributes:
        stop: what kind of stop.
        reason: in the rank's words; empty where it told none yet.
        step: the step it was at; None where it did not say.
    """

    kind: Literal["stop_wanted"]
    at_s: float
    attempt: int
    rank: int
    stop: StopKind
    reason: str
    step: int | None


class ChecksCounted(NamedTuple):
    """Every check that missed the frozen page was counted; ``last`` is the highest."""

    kind: Literal["checks_counted"]
    at_s: float
    attempt: int
    last: int


class Signalled(NamedTuple):
    """The agent got a signal that means it: a stop, or one to pass on.

    ``dsup stop`` counts as a SIGINT whose ``sender_uid`` is known; ``now``: it kills.
    """

    kind: Literal["signalled"]
    at_s: float
    signum: int
    sender_pid: int
    sender_uid: int | None = None
    now: bool = False
