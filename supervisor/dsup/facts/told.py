"""What a rank tells beside exceptions: that it wants a stop, how it ends. Pure.

Notes are the doorbell of a stop: the page has the same wish, but no words for it.
"""

from __future__ import annotations

from typing import Any, Final, Literal, NamedTuple, TypeAlias, cast

from dsup.core.events import StopKind
from dsup.facts.fields import VERSION, loads, number, word
from dsup_runtime import contract

REASON_MAX_CHARS: Final = 200
Status: TypeAlias = Literal["FINISHED", "FAILED", "KILLED"]

_STATUSES: Final = ("FINISHED", "FAILED", "KILLED")
_STEP_MAX: Final = 2**53
_CODE_MAX: Final = 256


class Wanted(NamedTuple):
    """A rank wants a stop.

    Attributes:
        kind: what kind.
        reason: one printable line; empty where it gave none.
        step: the step it was at; None where it did not say.
    """

    kind: StopKind
    reason: str = ""
    step: int | None = None


class Outcome(NamedTuple):
    """How a rank says that it ends.

    Attributes:
        exit_code: None where it did not say.
        resumable: a checkpoint to go on from was left, as far as it knows.
    """

    status: Status
    exit_code: int | None
    resumable: bool


def decode_wanted(raw: bytes) -> Wanted | None:
    """Return what a note wants; None if it is no wish of a kind that is known."""
    fields = _note(raw, "stop")
    kind = fields.get("stop")
    if kind not in contract.STOP_KINDS[1:]:
        return None
    reason = word(fields.get("reason"), REASON_MAX_CHARS)
    return Wanted(cast("StopKind", kind), reason, number(fields.get("step"), _STEP_MAX))


def decode_outcome(raw: bytes) -> Outcome | None:
    """Return how a rank ends, by its note; None if that is not what it says."""
    fields = _note(raw, "outcome")
    status = fields.get("status")
    if status not in _STATUSES:
        return None
    code = number(fields.get("exit_code"), _CODE_MAX)
    return Outcome(cast("Status", status), code, fields.get("resumable") is True)


def _note(raw: bytes, kind: str) -> dict[str, Any]:
    """Return the fields of a note of that kind; none if it is another."""
    fields = loads(raw)
    ours = fields.get("kind") == kind and fields.get("v") == VERSION
    return fields if ours else {}
