"""How a life of a rank ended: one value for tracker, agent and launcher alike.

FINISHED  what the training was to do is done             exit 0
KILLED    somebody ended it; resumable if it may go on     143, 130 for Ctrl-C, 1 where
                                                           another rank was ended
FAILED    something went wrong, here or on another rank    1, or what sys.exit said
"""

from __future__ import annotations

import operator
import sys
from typing import Final, Literal, NamedTuple

from dsup_runtime import contract, heartbeat
from dsup_runtime.error_text import describe, name_of, text_of
from dsup_runtime.errors import BarrierTimeout, PeerError

EXIT_FAILED: Final = 1
EXIT_INTERRUPTED: Final = 130
EXIT_STOPPED: Final = 143

STRENGTH: Final = ("FINISHED", "KILLED", "FAILED")
"""What is terminal is never replaced by what stands before it here."""

_FALLEN_S: Final = 0.2
_FINISH: Final = contract.PHASES.index("finish")
_PREEMPT: Final = contract.STOP_KINDS.index("preempt")
_LOST: Final = "lost another rank"
_GLOO: Final = "/gloo/transport/"  # all that gloo raises are such RuntimeErrors


class Outcome(NamedTuple):
    """The one truthful end of a run on this rank.

    Attributes:
        status: as above.
        exit_code: what this process ends with.
        resumable: whether a next attempt may go on from the newest checkpoint.
        reason: a few words; empty for a plain success.
        error: type and text of what went wrong; None where nothing did.
        rank: global rank where it began; None where nobody can tell.
        step: the step it happened at; None where nobody can tell.
    """

    status: Literal["FINISHED", "KILLED", "FAILED"]
    exit_code: int
    resumable: bool = False
    reason: str = ""
    error: str | None = None
    rank: int | None = None
    step: int | None = None


def finished(reason: str = "", *, step: int | None = None) -> Outcome:
    """Return the outcome of a training that is done."""
    return Outcome("FINISHED", 0, reason=reason, step=step)


def stopped(reason: str, *, rank: int | None = None, step: int | None) -> Outcome:
    """Return the outcome of a run that was asked to end and may be resumed."""
    return Outcome(
        "KILLED", EXIT_STOPPED, resumable=True, reason=reason, rank=rank, step=step
    )


def of_error(error: BaseException, *, rank: int, step: int | None) -> Outcome:
    """Return the outcome of a run that an exception ended.

    Args:
        error: what was raised.
        rank: the global rank it was raised on.
        step: the last step known there; None if there is none.
    """
    if isinstance(error, KeyboardInterrupt):
        return Outcome(
            "KILLED", EXIT_INTERRUPTED, reason="interrupted", rank=rank, step=step
        )
    code = exit_code(error)
    words = describe(error)
    lost = _of_connection(error)
    blamed = heartbeat.fallen(_FALLEN_S) if lost else _blamed(error, rank)
    if isinstance(error, SystemExit) and code in {EXIT_INTERRUPTED, EXIT_STOPPED}:
        resumable = code == EXIT_STOPPED
        return Outcome("KILLED", code, resumable, words, rank=rank, step=step)
    if lost and blamed is not None and _was_ended(blamed):
        return stopped(_LOST, rank=blamed, step=step)._replace(
            exit_code=EXIT_FAILED, error=words
        )
    return Outcome(
        "FAILED",
        code or EXIT_FAILED,
        reason=_LOST if lost else name_of(error),
        error=words,
        rank=blamed,
        step=step,
    )


def exit_code(error: BaseException) -> int:
    """Return what a process ends with that nobody keeps from this exception."""
    if not isinstance(error, SystemExit):
        return EXIT_FAILED
    if error.code is None:
        return 0
    return error.code & 0xFF if isinstance(error.code, int) else EXIT_FAILED


def whole(step: object) -> int | None:
    """Return a step as the plain number it is; None for what is none."""
    try:
        return operator.index(step)  # type: ignore[arg-type]
    except Exception:  # noqa: BLE001 (a script may count in anything)
        return None


def mark_ended() -> None:
    """Let the other ranks see that this one was told to end; safe in a handler."""
    page = heartbeat.own_page()
    if page is not None and page.is_memory:
        page.slot[contract.SLOT_PHASE] = _FINISH


def _was_ended(slot: int) -> bool:
    """Return whether a rank that has gone had been asked to stop, and told to end."""
    page = heartbeat.own_page()
    if page is None:
        return False
    first = contract.slot_offset(slot)
    wanted = page.words[first + contract.SLOT_WANTED]
    return wanted == _PREEMPT and page.words[first + contract.SLOT_PHASE] == _FINISH


def _blamed(error: BaseException, rank: int) -> int | None:
    """Return the rank that an error is about; None if nobody knows which."""
    if isinstance(error, PeerError):
        return error.ranks[0] if error.ranks else None
    if isinstance(error, BarrierTimeout):
        return error.missing[0] if error.missing else None
    return rank


def _of_connection(error: BaseException) -> bool:
    """Return whether torch lost another rank: the one that says so is a victim."""
    dist = sys.modules.get("torch.distributed")
    if dist is not None and dist.is_available() and isinstance(error, dist.DistError):
        return True
    return type(error) is RuntimeError and _GLOO in text_of(error)
