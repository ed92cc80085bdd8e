"""What is said of hangs: who is suspected, who did not come, and what is done. Pure."""

from __future__ import annotations

from typing import Final

from dsup.core import events as ev
from dsup.core.state import Hang, Stage, State
from dsup.report.sentences import ranks

LOUD: Final = frozenset({"frozen", "asleep", "idle", "still", "absent", "limit"})
"""What no training does by itself; ranks without a step may just be slow."""

NOT_TAKEN: Final = "no stacks could be taken in time"

_BRIEF: Final = {
    "frozen": "frozen",
    "asleep": "asleep in state D",
    "idle": "doing nothing",
    "still": "doing nothing",
    "absent": "missing",
    "waiting": "waiting for another's phase",
}


def line(before: State, event: ev.Event, after: State) -> str:
    """Return what everybody is to hear of an event of a hang; empty for nothing."""
    match event:
        case ev.HangSuspected() if after.suspected and event.why in LOUD:
            return f"{suspected(event)}: stacks are taken"
        case ev.HangCleared():
            return _cleared(before, after)
        case ev.HangConfirmed() if after.stage is Stage.CAPTURING:
            return f"{told(after.hang)}; {_next(after)}"
        case ev.HangConfirmed() if after.suspected is not before.suspected:
            return f"{told(after.suspected)}; nothing is done (--on-hang report)"
        case ev.Captured() if event.final and after.stage is Stage.TERMINATING:
            return f"{_found(event)}; ending {ranks(after.alive)}"
        case ev.Captured() if event.ranks and after.suspected is not before.suspected:
            return absent(after.suspected)
        case ev.Straggles() if event.times:
            return straggler(event)
        case _:
            return ""


def _cleared(before: State, after: State) -> str:
    doubt = before.suspected
    if before.stage is not after.stage:
        return f"no hang any more: {ranks(after.alive)} went on, and nobody is ended"
    loud = doubt is not None and doubt.why in LOUD
    back = after.alive.intersection(doubt.ranks) if doubt and loud else ()
    return f"no hang any more: {ranks(back)} went on" if back else ""


def detail(event: ev.HangSuspected | ev.HangCleared | ev.Captured) -> str:
    """Return what only the verbose hear of an event."""
    match event:
        case ev.HangSuspected():
            return f"{suspected(event)}: stacks are taken"
        case ev.HangCleared():
            return f"no longer suspected: {_who(event.ranks)}"
        case ev.Captured() if not event.taken:
            return NOT_TAKEN
        case ev.Captured():
            return "the stacks are taken; they name nobody who did not come"


def suspected(event: ev.HangSuspected) -> str:
    """Return who shows no sign of life or progress, and for how long."""
    who, for_s = _who(event.ranks), max(0.0, event.at_s - event.since_s)
    usual = "" if event.usual_s is None else f" (usual {event.usual_s:.2g} s)"
    match event.why:
        case "frozen":
            return f"{who} {_is(event.ranks)} frozen (state T, as by SIGSTOP)"
        case "asleep":
            return (
                f"{who} {_is(event.ranks)} asleep in the kernel (state D) for "
                f"{for_s:.0f} s"
            )
        case "idle":
            return (
                f"{who} did nothing for {for_s:.0f} s (no processor time, no output) "
                "while all others are busy and write nothing"
            )
        case "still":
            return (
                f"no rank did anything for {for_s:.0f} s (no processor time, no output)"
            )
        case "waiting":
            return (
                f"{who} made no step for {for_s:.0f} s, while another evaluates, saves "
                "or finishes"
            )
        case "silent":
            return f"{who} gave no sign of life for {for_s:.1f} s{usual}"
        case _:
            return f"{who} made no step for {for_s:.1f} s{usual}"


def absent(hang: Hang | None) -> str:
    """Return who did not come where the others wait, and where that rank is.

    That others wait is known of a collective alone; else it is only told where it is.
    """
    if hang is None:
        return ""
    who = ranks(hang.ranks)
    if not hang.op:
        return f"{who}{_at(hang)}"
    return f"{who} did not come to {hang.op}, where the others wait{_at(hang)}"


def _at(hang: Hang) -> str:
    if not hang.place:
        return ""
    who = "it" if len(hang.ranks) == 1 else f"rank {hang.ranks[0]}"
    return f"; {who} is at {hang.place}"


def straggler(event: ev.Straggles) -> str:
    """Return by how much a rank is slower than its peers, and why."""
    why = f" ({event.why})" if event.why else ""
    return f"rank {event.rank} takes {event.times:.2g} times as long as its peers{why}"


def brief(state: State) -> list[str]:
    """Return what a status line says of hangs and stragglers, in a few words each."""
    said, doubt = [], state.suspected
    if doubt is not None and state.stage is Stage.RUNNING:
        said.append(f"{_who(doubt.ranks)} {_BRIEF.get(doubt.why, 'without a step')}")
    slow = state.slow & state.alive
    if slow:
        said.append(f"{ranks(slow)} slow")
    return said


def told(hang: Hang | None) -> str:
    """Return who hangs, for a hang that was confirmed."""
    return f"hang: {seen(hang)}" if hang else ""


def seen(hang: Hang) -> str:
    """Return what was seen of a hang."""
    who = _who(hang.ranks)
    match hang.why:
        case "frozen":
            said = f"{who} stayed frozen (state T)"
        case "asleep":
            said = f"{who} stayed asleep in the kernel (state D)"
        case "absent" if hang.ranks:
            return absent(hang)
        case _:
            # Which of them is the cause, stacks tell: whoever waits for it looks alike.
            count = len(set(hang.ranks))
            many = f"{count} ranks" if count > 1 else "a rank"
            its = "their" if count > 1 else "its"
            return f"{many} made no progress within the limit of {its} phase"
    return f"{said}{_at(hang)}"


def _found(event: ev.Captured) -> str:
    if not event.taken:
        return NOT_TAKEN
    if not event.ranks:
        return "the stacks are taken"
    place = Hang(event.ranks, "absent", event.at_s, event.op, event.place)
    return f"the stacks are taken: {absent(place)}"


def _next(state: State) -> str:
    then = "ending the run (--on-hang stop)"
    if state.spec.on_hang == "restart":
        then = "ending the attempt"
    return f"taking stacks, then {then}"


def _who(numbers: tuple[int, ...]) -> str:
    return ranks(numbers) if numbers else "a rank that cannot be told"


def _is(numbers: tuple[int, ...]) -> str:
    return "are" if len(set(numbers)) > 1 else "is"
