"""The events about steps; ``core.events`` has all the others, and names these, too."""

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
