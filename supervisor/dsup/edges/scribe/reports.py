"""What the agent is told of its scribe."""

from __future__ import annotations

from typing import Literal, NamedTuple


class Prepared(NamedTuple):
    """The directories of an attempt are there, or cannot be made."""

    kind: Literal["prepared"]
    attempt: int
    error: str | None


class Lost(NamedTuple):
    """A scribe died (exit code, or minus a signal); another follows by itself."""

    kind: Literal["scribe_lost"]
    pid: int
    status: int


class Ended(NamedTuple):
    """The last scribe is gone; ``complete`` tells whether it wrote all it was given."""

    kind: Literal["scribe_ended"]
    complete: bool


class Tails(NamedTuple):
    """The last words of an attempt's streams, for ``protocol.decode_tails``.

    Attributes:
        fd: a memory file; whoever takes this closes it.
    """

    kind: Literal["tails"]
    attempt: int
    fd: int


Report = Prepared | Lost | Ended | Tails
