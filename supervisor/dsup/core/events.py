"""What happened: the facts that edges hand to the state machine.

Events are light on purpose (a NamedTuple costs a tenth of a dataclass at import): the
agent needs them before its first rank runs. Their first field is a literal, so
that events of different kinds never compare equal. All times are the agent's clock,
CLOCK_MONOTONIC, in seconds; they say when the agent's loop looked.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

from dsup.core.hang_events import (
    Captured,
    HangCleared,
    HangConfirmed,
    HangSuspected,
    Straggles,
)
from dsup.core.step_events import Progressed, Stepped, TookOver
from dsup.core.stop_events import (
    ChecksCounted,
    SelfStopping,
    Signalled,
    StopKind,
    StopWanted,
)

__all__ = [
    "Cannot",
    "Captured",
    "ChecksCounted",
    "Event",
    "GroupEmpty",
    "GuardLost",
    "HangCleared",
    "HangConfirmed",
    "HangSuspected",
    "HelpersLeft",
    "Judged",
    "Launched",
    "LoopStalled",
    "Noted",
    "PlanAgreed",
    "Prepared",
    "Progressed",
    "RankExited",
    "RankStarted",
    "Scanned",
    "SelfStopping",
    "Signalled",
    "Stepped",
    "StopKind",
    "StopWanted",
    "Straggles",
    "Tick",
    "TookOver",
]


class Launched(NamedTuple):
    """The run begins: the first event of every journal."""

    kind: Literal["launched"]
    at_s: float


class Prepared(NamedTuple):
    """All that an attempt needs before its ranks can be spawned is there.

    Attributes:
        port: MASTER_PORT of the attempt, held by the agent.
        resume_from: path of the checkpoint to resume from; empty when there is none.
    """

    kind: Literal["prepared"]
    at_s: float
    attempt: int
    port: int
    resume_from: str


class Cannot(NamedTuple):
    """An attempt could not be prepared or its ranks could not be started.

    Attributes:
        cause: one of ``exits.CAUSES``.
        code: 126 or 127 where a program could not be started, else 1.
        reason: one sentence for the user.
    """

    kind: Literal["cannot"]
    at_s: float
    attempt: int
    cause: str
    code: int
    reason: str


class RankStarted(NamedTuple):
    """A rank's process exists."""

    kind: Literal["rank_started"]
    at_s: float
    attempt: int
    rank: int
    pid: int


class RankExited(NamedTuple):
    """A rank ended and was reaped.

    Attributes:
        late_s: the end may have happened up to this much before ``at_s``.
        status: exit code, or minus the signal number, as in ``subprocess``.
        dying: other ranks that the kernel was already taking down at that moment;
            looked up at the first death of an attempt only.
    """

    kind: Literal["rank_exited"]
    at_s: float
    late_s: float
    attempt: int
    rank: int
    status: int
    dying: tuple[int, ...]


class Noted(NamedTuple):
    """A rank has told of an exception that ends it.

    It is decisive where no other rank's end can have brought it about.
    """

    kind: Literal["noted"]
    at_s: float
    attempt: int
    rank: int
    decisive: bool


class HelpersLeft(NamedTuple):
    """Every rank has ended, but processes they started live on.

    Attributes:
        names: ``comm (pid)`` of some of them, at most eight.
        total: how many there are.
    """

    kind: Literal["helpers_left"]
    at_s: float
    attempt: int
    names: tuple[str, ...]
    total: int


class GroupEmpty(NamedTuple):
    """No rank and nothing that a rank started is alive: proven, not assumed."""

    kind: Literal["group_empty"]
    at_s: float
    attempt: int


class Scanned(NamedTuple):
    """The search for the newest valid checkpoint ended.

    Attributes:
        step: its step; None when there is none.
        path: its path; empty when there is none.
        error: why the search gave no answer; empty when it did.
    """

    kind: Literal["scanned"]
    at_s: float
    attempt: int
    step: int | None
    path: str
    error: str


class Judged(NamedTuple):
    """The judge has answered, or was given up.

    Attributes:
        cause: one of ``exits.CAUSES``; empty where there is no answer.
        first_ranks: where it began; empty where nobody can tell.
        status: the first rank's own exit code or minus its signal; 1 where it has none.
        signature: the same for the same failure in another attempt.
        final: everything that is known by the end of the attempt was put to the judge.
    """

    kind: Literal["judged"]
    at_s: float
    attempt: int
    cause: str
    first_ranks: tuple[int, ...]
    status: int
    signature: str
    final: bool


class PlanAgreed(NamedTuple):
    """Every node has agreed to a plan; one node agrees with itself at once."""

    kind: Literal["plan_agreed"]
    at_s: float
    attempt: int
    restart_at_s: float | None
    code: int
    reason: str


class GuardLost(NamedTuple):
    """The guard has gone, so nobody would clean up after the agent."""

    kind: Literal["guard_lost"]
    at_s: float


class LoopStalled(NamedTuple):
    """The agent's loop was ``gap_s`` late: it was stopped, swapped out or starved."""

    kind: Literal["loop_stalled"]
    at_s: float
    gap_s: float


class Tick(NamedTuple):
    """The deadline of the state has come."""

    kind: Literal["tick"]
    at_s: float


Event: TypeAlias = (
    Launched
    | Prepared
    | Cannot
    | RankStarted
    | RankExited
    | Noted
    | SelfStopping
    | StopWanted
    | ChecksCounted
    | HelpersLeft
    | GroupEmpty
    | Progressed
    | Stepped
    | TookOver
    | HangSuspected
    | HangCleared
    | HangConfirmed
    | Captured
    | Straggles
    | Scanned
    | Judged
    | PlanAgreed
    | Signalled
    | GuardLost
    | LoopStalled
    | Tick
)
