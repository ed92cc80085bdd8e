"""What happened: the facts that edges hand to the state machine.

Events are light on purpose (a NamedTuple costs a tenth of a dataclass at import): the
agent needs them before its first rank runs. Their first field is a literal, so
that events of different kinds never compare equal. All times are the agent's clock,
CLOCK_MONOTONIC, in seconds; they say when the agent's loop looked.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

from dsup.core.step_events import Progressed as Progressed  # noqa: PLC0414 (as here)
from dsup.core.step_events import Stepped as Stepped  # noqa: PLC0414 (as here)
from dsup.core.step_events import TookOver as TookOver  # noqa: PLC0414 (as here)

StopKind: TypeAlias = Literal["user", "limit", "preempt", "peer", "error"]
"""A word of ``contract.STOP_KINDS``, but for ``none``."""


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
