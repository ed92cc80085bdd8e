"""What is to be done: the orders that the state machine gives to edges."""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias


class Prepare(NamedTuple):
    """Get an attempt ready: directories, port, heartbeat page, checkpoint."""

    kind: Literal["prepare"]
    attempt: int


class Spawn(NamedTuple):
    """Start every rank of the attempt."""

    kind: Literal["spawn"]
    attempt: int


class SignalRanks(NamedTuple):
    """Send a signal to rank processes, never to their helpers."""

    kind: Literal["signal_ranks"]
    attempt: int
    ranks: tuple[int, ...]
    signum: int


class FreezePage(NamedTuple):
    """Have every rank wait at its next check until a stop is published.

    Attributes:
        until_s: when ranks that have not left are sent SIGTERM, agent clock, seconds.
    """

    kind: Literal["freeze_page"]
    attempt: int
    until_s: float


class CountChecks(NamedTuple):
    """Find out how far the ranks are, now that none passes a check any more."""

    kind: Literal["count_checks"]
    attempt: int


class PublishStop(NamedTuple):
    """Tell the ranks at which check all of them leave, and why.

    Attributes:
        check: its number, from 1; ``contract.AT_ONCE`` where one has failed, and none
            can be agreed any more.
        stop: a word of ``contract.STOP_KINDS``.
        rank: who wanted it; -1 for nobody in particular.
        until_s: as in ``FreezePage``.
    """

    kind: Literal["publish_stop"]
    attempt: int
    check: int
    stop: str
    rank: int
    reason: str
    until_s: float


class PassOn(NamedTuple):
    """Send a signal to those ranks that have a handler for it."""

    kind: Literal["pass_on"]
    attempt: int
    ranks: tuple[int, ...]
    signum: int


class Capture(NamedTuple):
    """Take the stacks of all ranks and their helpers, while they live.

    Attributes:
        final: the attempt is about to be ended.
    """

    kind: Literal["capture"]
    attempt: int
    final: bool


class TerminateHelpers(NamedTuple):
    """Send SIGTERM to what the ranks left behind."""

    kind: Literal["terminate_helpers"]
    attempt: int


class KillAll(NamedTuple):
    """Send SIGKILL to every descendant, again and again until none is left."""

    kind: Literal["kill_all"]
    attempt: int


class CloseAttempt(NamedTuple):
    """Keep the attempt's heartbeat page and remove its temporary directory."""

    kind: Literal["close_attempt"]
    attempt: int


class Scan(NamedTuple):
    """Look for the newest valid checkpoint."""

    kind: Literal["scan"]
    attempt: int


class Judge(NamedTuple):
    """Find out which rank went first and why, from what is known so far.

    Attributes:
        final: the attempt is over, so nothing more is to be waited for.
    """

    kind: Literal["judge"]
    attempt: int
    final: bool


class Propose(NamedTuple):
    """Put a plan to all nodes.

    Attributes:
        restart_at_s: when the next attempt begins, agent clock; None to give up.
        code: the exit code when the run is given up.
        reason: why, for the user.
    """

    kind: Literal["propose"]
    attempt: int
    restart_at_s: float | None
    code: int
    reason: str


class Exit(NamedTuple):
    """End the agent: the last command of every run.

    Attributes:
        origin: ``rank`` where the code is a rank's own, else ``dsup``.
    """

    kind: Literal["exit"]
    code: int
    origin: Literal["rank", "dsup"]


Command: TypeAlias = (
    Prepare
    | Spawn
    | SignalRanks
    | FreezePage
    | CountChecks
    | PublishStop
    | PassOn
    | Capture
    | TerminateHelpers
    | KillAll
    | CloseAttempt
    | Scan
    | Judge
    | Propose
    | Exit
)
