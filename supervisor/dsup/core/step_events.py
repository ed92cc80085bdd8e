"""Events that change no stage; ``core.events`` names them with all the others."""

from __future__ import annotations

from typing import Literal, NamedTuple


class Progressed(NamedTuple):
    """The ranks finished a step that no earlier attempt of the run had reached."""

    kind: Literal["progressed"]
    at_s: float
    attempt: int
    step: int


class Stepped(NamedTuple):
    """How far an attempt is: told of its first step, now and then, and when ranks end.

    It changes nothing; with it a journal tells where the time went.

    Attributes:
        step: the last step that every rank has finished.
        made_s: when the last of them had, agent clock, seconds, in the ranks' words.
    """

    kind: Literal["stepped"]
    at_s: float
    attempt: int
    step: int
    made_s: float


class TookOver(NamedTuple):
    """The run before, of the same job, was found unfinished and dead, and closed.

    Attributes:
        run: its name.
        cause: what ended it, ``agent_killed`` or ``node_rebooted``.
        ended_in: its last attempt.
        failed_attempts: its failures in a row, that last one included.
        best_step: the highest step that it told of; None for none.
    """

    kind: Literal["took_over"]
    at_s: float
    run: str
    cause: str
    ended_in: int
    failed_attempts: int
    best_step: int | None
