"""The state of a run on one node: values only, changed by ``machine.decide`` alone."""

from __future__ import annotations

from enum import Enum
from typing import Final, Literal, NamedTuple, TypeAlias

from dsup.core.plan import Plan, Policy

NEVER: Final = float("inf")
NOBODY: Final = -1


OnHang: TypeAlias = Literal["restart", "report", "stop"]


class Stage(Enum):
    """Where the agent is in the life of an attempt; ``machine`` has the theory."""

    PREPARING = "preparing"
    RUNNING = "running"
    PARKING = "parking"
    SETTLING = "settling"
    CAPTURING = "capturing"
    TERMINATING = "terminating"
    KILLING = "killing"
    DECIDING = "deciding"
    OVER = "over"


class Spec(NamedTuple):
    """What was asked for; constant for the whole run.

    Attributes:
        world_size: ranks of the run, all on this node.
        settle_s: how long to listen after an undecisive first death, seconds.
        grace_s: from the first signal to SIGKILL, seconds.
        keep_helpers: processes that outlive a successful run are left alone.
        also_stop: signals beyond INT, TERM, HUP and QUIT that stop the run.
        on_hang: what to do about a confirmed hang.
        stop_after_s: the time limit of the run, seconds from its launch; None for none.
    """

    world_size: int
    settle_s: float
    grace_s: float
    keep_helpers: bool
    policy: Policy
    also_stop: tuple[int, ...] = ()
    on_hang: OnHang = "restart"
    stop_after_s: float | None = None


class Stop(NamedTuple):
    """Somebody wants the run to end.

    Attributes:
        signum: the first signal; SIGTERM where it was no signal.
        times: how many signals, those within a second counted once; 0 for none yet.
        last_s: when the last wish that counted came, agent clock.
        cause: a key of ``exits.CAUSES``.
        asked_by: uid and pid of who ran ``dsup stop``; None where it was no such wish.
    """

    signum: int
    times: int
    last_s: float
    cause: str = "preempted"
    asked_by: tuple[int, int] | None = None


class Parking(NamedTuple):
    """The ranks are to leave their loops by themselves, all at the same check.

    Attributes:
        kind: a word of ``contract.STOP_KINDS``.
        rank: who wanted it; ``NOBODY`` for nobody in particular.
        reason: in a few words, for the ranks and for people.
        frozen: the page is frozen, so that every rank waits at its next check.
        check: the number of the check at which all leave; None until it is published.
    """

    kind: str
    rank: int
    reason: str
    frozen: bool = False
    check: int | None = None


class Hang(NamedTuple):
    """A hang, as ``HangSuspected``, ``Captured`` or ``HangConfirmed`` told it.

    Attributes:
        ranks: who hangs, or who did not come; empty where nobody can be named.
        why: ``frozen``, ``asleep``, ``silent``, ``stalled``, ``absent`` or ``limit``.
        op: the collective that the others wait in; empty if unknown.
        place: where the first of ``ranks`` is; empty if unknown.
    """

    ranks: tuple[int, ...]
    why: str
    at_s: float
    op: str = ""
    place: str = ""


class Death(NamedTuple):
    """A rank's end, as ``RankExited`` told it."""

    rank: int
    status: int
    at_s: float


class Judgement(NamedTuple):
    """What policy needs of a verdict, as ``Judged`` told it."""

    cause: str
    first_ranks: tuple[int, ...]
    status: int
    signature: str


class Obstacle(NamedTuple):
    """Why an attempt could not start, or go on, though no rank failed.

    Attributes:
        cause: a key of ``exits.CAUSES``.
        code: exit code where nothing else decides it.
        reason: one sentence for the user.
        at_s: when it was met, agent clock.
    """

    cause: str
    code: int
    reason: str
    at_s: float


class State(NamedTuple):
    """Everything ``decide`` remembers.

    Attributes:
        deadline_s: when the stage is to be looked at again; ``NEVER`` for no deadline.
        kill_s: the end of the grace, while PARKING and TERMINATING.
        limit_s: when the run's time is up; ``NEVER`` for no limit.
        started_s: when the attempt's ranks were ordered.
        alive: ranks with a process.
        self_stopping: ranks whose loops ask at every step whether to stop.
        ended: ends in the order in which they were seen.
        failed: the first end that counts against the attempt; None while there is none.
        suspects: ranks whose death goes before ``failed`` if it was one that nobody
            else can cause: they were dying when ``failed`` was seen, or died while
            nobody had been signalled yet.
        parking: how the ranks are to leave by themselves; None while they are not to.
        suspected: a hang that nothing is done about; None while there is none.
        hang: why the attempt was ended while no rank had failed; None if it was not.
        slow: ranks that have been slower than their peers for some time.
        noted: ranks that have told of an exception that no other rank can cause.
        judgement: the judge's last answer; None while there is none.
        awaited: answers without which no plan is made, ``scanned`` and ``judged``.
        cannot: what was in the way where no rank failed; None otherwise.
        succeeded: every rank ended with 0 before any stop.
        abandoned: the guard has gone; clean up and end.
        best_step: highest step seen in any attempt; None without the runtime.
        checkpoint_step: step of the newest checkpoint known.
        progressed: this attempt has a step or checkpoint no earlier one had.
        failed_attempts: failures in a row.
        signature: (cause, rank, status, what the judge says identifies it) of the
            failure before.
        plan: what was proposed after this attempt's failure, then what was agreed.
        agreed: every node has agreed to ``plan``.
    """

    spec: Spec
    stage: Stage = Stage.PREPARING
    attempt: int = 0
    deadline_s: float = NEVER
    kill_s: float = NEVER
    limit_s: float = NEVER
    started_s: float = 0.0
    alive: frozenset[int] = frozenset()
    self_stopping: frozenset[int] = frozenset()
    ended: tuple[Death, ...] = ()
    failed: Death | None = None
    suspects: tuple[int, ...] = ()
    suspected: Hang | None = None
    hang: Hang | None = None
    slow: frozenset[int] = frozenset()
    noted: frozenset[int] = frozenset()
    judgement: Judgement | None = None
    awaited: frozenset[str] = frozenset()
    cannot: Obstacle | None = None
    succeeded: bool = False
    stop: Stop | None = None
    parking: Parking | None = None
    abandoned: bool = False
    best_step: int | None = None
    checkpoint_step: int | None = None
    progressed: bool = False
    failed_attempts: int = 0
    signature: tuple[str, int | None, int, str] | None = None
    plan: Plan | None = None
    agreed: bool = False
