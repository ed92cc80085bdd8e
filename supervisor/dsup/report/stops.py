"""What is said of a stop: who wanted it, what the ranks get, and how it went. Pure."""

from __future__ import annotations

from dsup.core import events as ev
from dsup.core.exits import SIGINT, signal_name, stop_code
from dsup.core.state import NOBODY, Stage, State, Stop
from dsup.report.sentences import ranks


def is_news(before: State, after: State) -> bool:
    """Return whether an event has brought a wish that counts."""
    wished = after.parking is not None and after.parking is not before.parking
    return wished or after.stop is not before.stop


def line(
    before: State, event: ev.Signalled | ev.StopWanted | ev.Tick, after: State
) -> str:
    """Return what is to be said about a wish to stop."""
    match event:
        case ev.Signalled() if event.sender_uid is not None:
            return _asked(event, after)
        case ev.Signalled():
            return _signalled(before, event, after)
        case ev.StopWanted():
            why = f"{event.stop}: {event.reason}" if event.reason else event.stop
            where = "" if event.step is None else f" at step {event.step}"
            who = f"rank {event.rank} wants to stop{where} ({why})"
        case _:
            who = f"time limit of {after.spec.stop_after_s:g} s (--stop-after)"
    if before.stage is Stage.PARKING:
        return f"{who}, while the ranks are stopping already"
    if after.stage is Stage.TERMINATING and after.alive:
        return f"{who}: SIGTERM to {ranks(after.alive)}, {_kill(after)}"
    return f"{who}: {_stopping(after)}"


def given_up(state: State) -> str:
    """Return what is said where ranks have not left by themselves."""
    limit = f"{state.spec.grace_s / 2:g} s"
    left = f"{ranks(state.alive)} did not stop by themselves within {limit}: SIGTERM"
    met = state.cannot
    return f"{met.reason}; SIGTERM to {ranks(state.alive)}" if met else left


def kind(state: State) -> str:
    """Return what kind of stop it is, a word of the status document's.

    ``user`` is that of a person, by Ctrl-C or ``dsup stop``.
    """
    stop, wish = state.stop, state.parking
    if stop is not None and stop.times:
        return "user" if stop.signum == SIGINT else "preempt"
    if wish is not None:
        return wish.kind
    return "limit" if stop is None or stop.cause == "time_limit" else "preempt"


def reason(state: State) -> str:
    """Return who or what wants a stop, in a few words; empty for nobody."""
    stop, wish = state.stop, state.parking
    if stop is not None and stop.times:
        return _by_whom(stop)
    if wish is not None and wish.reason:
        return wish.reason
    if stop is not None and stop.cause == "time_limit":
        return "time limit"
    return wish.kind if wish else ""


def as_wanted(state: State) -> str:
    """Return how a run ended well that a rank wanted to end; empty for any other."""
    wish = state.parking
    if wish is None:
        return ""
    why = f" ({wish.reason})" if wish.reason else ""
    return f"stopped by rank {wish.rank}{why}: every rank ended with 0"


def by_whom(state: State) -> str:
    """Return who stopped a run, and its exit code; empty where nobody did."""
    stop, wish = state.stop, state.parking
    if stop is None:
        return ""
    who = _by_whom(stop)
    if stop.cause == "time_limit":
        who = "its time limit"
    elif stop.times == 0 and wish is not None and wish.rank != NOBODY:
        who = f"rank {wish.rank} ({wish.reason or wish.kind})"
    return f"stopped by {who}, exit code {stop_code(stop.signum)}"


def _by_whom(stop: Stop) -> str:
    if stop.asked_by is None:
        return signal_name(stop.signum)
    return "dsup stop (uid {}, pid {})".format(*stop.asked_by)


def _signalled(before: State, event: ev.Signalled, after: State) -> str:
    name, stop = signal_name(event.signum), after.stop
    left_s = max(0.0, after.kill_s - event.at_s)
    stopping = {Stage.PARKING, Stage.TERMINATING}
    known = before.stop is not None or before.stage is Stage.PARKING
    if known and stop is not None and stop.times == 1 and after.stage in stopping:
        return f"{name}: the ranks are stopping already, SIGKILL in {left_s:.0f} s"
    if stop is None or stop.times == 1:
        if after.stage is Stage.TERMINATING and after.alive:
            return f"{name}: passed on to {ranks(after.alive)}, {_kill(after)}"
        return f"{name}: {_stopping(after)}"
    if after.stage is Stage.KILLING:
        return f"{name} again: killing what is left"
    return f"{name} again: SIGKILL in {left_s:.0f} s"


def _asked(event: ev.Signalled, after: State) -> str:
    who = f"stop asked by {asker(event)}"
    if after.stage is Stage.KILLING:
        return f"{who}: killing what is left"
    if after.stage is Stage.TERMINATING and after.alive:
        return f"{who}: SIGTERM to {ranks(after.alive)}, {_kill(after)}"
    return f"{who}: {_stopping(after)}"


def asker(event: ev.Signalled) -> str:
    """Return who asked for a stop; only of one that was asked for."""
    return f"dsup stop (uid {event.sender_uid}, pid {event.sender_pid})"


def _stopping(state: State) -> str:
    if state.stage is not Stage.PARKING:
        return "stopping"
    half = f"SIGTERM after {state.spec.grace_s / 2:g} s"
    late = state.alive - state.self_stopping
    when = f"as soon as {ranks(late)} can" if late else "at the next step"
    return f"stopping {when}; {half}, {_kill(state)}"


def _kill(state: State) -> str:
    stop, again = state.stop, ""
    if stop is not None and stop.signum == SIGINT:
        again = " or by dsup stop --now" if stop.asked_by else " or at the next Ctrl-C"
    return f"SIGKILL after {state.spec.grace_s:g} s{again}"
