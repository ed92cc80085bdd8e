"""What a wish to stop does to a run: ranks that can are parked, others are signalled.

Theory of operation
-------------------
Somebody wants the end: whoever signals dsup, its time limit, or a rank (a deferred
error, a SIGTERM of its own, enough training). Where every living rank asks at each step
whether to stop, nobody is signalled. The ranks are parked, so that all of them leave at
the same check:

    at once       the page is frozen: who comes to a check waits there
    20 ms later   a check that missed it has its number in the page by now; the greatest
                  of all ranks and nodes is looked up, and the one after it published
    then          who waits at an earlier check goes on, and so frees those that sit in
                  a collective with it; at the published one all leave
    half the      SIGTERM to those that are left, and TERMINATING with the other half:
    grace         what the ranks were given comes out of the grace

No rank ever has to answer: one that sits in a collective could not, and who waited for
it would wait for ever.

A stop of the run (a signal, a limit, a preempted rank) forbids a restart whatever the
ranks do. A rank's wish for the attempt alone (``user``, ``peer``, ``error``) leaves the
answer to them: all end with 0 and have succeeded, or one fails and the ordinary way
begins. Between wishes the greatest kind wins until one is published. A stop by hand is
``user`` too, of nobody: it is one of the run, and counts as much as ``preempt``.

None of it is for an attempt that has failed: with a rank that is gone, or hangs, no
check can be agreed. Its ranks are told so on the page before they are signalled.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, assert_never

from dsup.core import commands as cmd
from dsup.core import enter
from dsup.core import events as ev
from dsup.core.enter import Decision
from dsup.core.exits import SIGINT, SIGTERM, heeds_stop, signal_name, stop_cause
from dsup.core.state import NOBODY, Obstacle, Parking, Stage, State, Stop
from dsup_runtime.contract import STOP_KINDS

FREEZE_S: Final = 0.02
"""So long a check may take from its number to its look at the page, and far less."""

REPEAT_S: Final = 1.0
SECOND_STOP_S: Final = 5.0

_CHECKS_MAX: Final = 2**53
_CAUSES: Final = {"preempt": "preempted", "limit": "time_limit"}
"""Wishes of a rank that stop the run, and what they are called then."""


def stops_run(kind: str, rank: int) -> bool:
    """Return whether a stop is one of the whole run, not of an attempt alone.

    Args:
        kind: a word of ``contract.STOP_KINDS``.
        rank: who wanted it; ``NOBODY`` for a person, a scheduler or a time limit.
    """
    return kind in _CAUSES or (kind == "user" and rank == NOBODY)


def weight(wish: Parking) -> int:
    """Return how much a wish counts: a person's as much as a scheduler's."""
    by_person = wish.kind == "user" and wish.rank == NOBODY
    return STOP_KINDS.index("preempt" if by_person else wish.kind)


def last_check(counts: Iterable[int]) -> int:
    """Return the last check that any rank has come to, 0 for none.

    Args:
        counts: each rank's own word for it; one that cannot be a count is ignored.
    """
    return max((count for count in counts if 0 <= count < _CHECKS_MAX), default=0)


def parked_until(state: State) -> float:
    """Return when ranks that have not left by themselves get SIGTERM, agent clock."""
    return state.kill_s - state.spec.grace_s / 2


def on_signal(state: State, event: ev.Signalled) -> Decision:
    """Answer a signal that stops the run."""
    stop = state.stop
    if stop is None:
        cause = stop_cause(event.signum)
        first = Stop(event.signum, 1, event.at_s, cause)
        kind = "user" if event.signum == SIGINT else "preempt"
        wish = Parking(kind, NOBODY, signal_name(event.signum))
        return _first_stop(state._replace(stop=first), event.at_s, wish)
    if event.at_s - stop.last_s < REPEAT_S:
        return state, ()
    again = stop._replace(times=stop.times + 1, last_s=event.at_s)
    return _further_stop(state._replace(stop=again), event, again)


def on_asked(state: State, event: ev.Signalled) -> Decision:
    """Answer ``dsup stop``: asked twice it is no impatience, ``--now`` is."""
    by = (event.sender_uid or 0, event.sender_pid)
    first = Stop(event.signum, 1, event.at_s, stop_cause(event.signum), by)
    if event.now:
        before = state.stop
        more = before and before._replace(times=before.times + 1, last_s=event.at_s)
        return _kill_now(state._replace(stop=more or first), event.at_s)
    if state.stop is not None:
        return state, ()
    wish = Parking("user", NOBODY, "dsup stop")
    return _first_stop(state._replace(stop=first), event.at_s, wish)


def on_limit(state: State, at_s: float) -> Decision:
    """Stop a run whose time is up."""
    first = Stop(SIGTERM, 0, at_s, "time_limit")
    wish = Parking("limit", NOBODY, f"time limit of {state.spec.stop_after_s:g} s")
    return _first_stop(state._replace(stop=first), at_s, wish)


def on_wanted(state: State, event: ev.StopWanted) -> Decision:
    """Answer a rank that wants a stop, unless dsup's own signal may have made it."""
    if state.stage not in {Stage.RUNNING, Stage.PARKING}:
        return state, ()
    wish = Parking(event.stop, event.rank, event.reason)
    cause, parking = _CAUSES.get(event.stop), state.parking
    if parking is not None and parking.check is not None:
        return state, ()
    if cause is not None and state.stop is None:
        stopped = state._replace(stop=Stop(SIGTERM, 0, event.at_s, cause))
        return _first_stop(stopped, event.at_s, wish)
    if parking is not None:
        return state._replace(parking=_greater(parking, wish)), ()
    return _park(state, event.at_s, wish)


def on_self_stopping(state: State, event: ev.SelfStopping) -> Decision:
    """Remember which ranks need no signal; the last of them may be waited for."""
    known = state._replace(self_stopping=state.self_stopping.union(event.ranks))
    return _freeze(known, event.at_s)


def on_counted(state: State, event: ev.ChecksCounted) -> Decision:
    """Publish the stop: the check after the last one that missed the frozen page."""
    parking = state.parking
    if state.stage is not Stage.PARKING or parking is None:
        return state, ()
    if not parking.frozen or parking.check is not None:
        return state, ()
    published = parking._replace(check=event.last + 1)
    order = cmd.PublishStop(
        "publish_stop",
        state.attempt,
        event.last + 1,
        parking.kind,
        parking.rank,
        parking.reason,
        parked_until(state),
    )
    return state._replace(parking=published), (order,)


def on_end(state: State, event: ev.RankExited) -> Decision:
    """Answer the end of a rank while PARKING; the state knows of it already."""
    as_asked = heeds_stop(event.status) if state.stop else event.status == 0
    if as_asked and state.alive:
        return _freeze(state, event.at_s)
    if as_asked and state.stop is None:
        return enter.leave(state, event.at_s)
    if not state.alive:
        return enter.linger(state, event.at_s)
    if state.stop is None:
        return enter.after_death(state, event)
    return enter.hasten_failed(state)


def on_tick(state: State, at_s: float) -> Decision:
    """Answer the deadline of PARKING: count the checks, or give the ranks up."""
    until_s = parked_until(state)
    if at_s < until_s:
        order = cmd.CountChecks("count_checks", state.attempt)
        return state._replace(deadline_s=until_s), (order,)
    if state.stop is not None:
        return enter.hasten(state, SIGTERM, state.kill_s)
    return enter.hasten_failed(state._replace(cannot=_not_heeded(state, at_s)))


def _first_stop(state: State, at_s: float, wish: Parking) -> Decision:
    stop = state.stop
    # A script that knows nothing of dsup takes SIGTERM for what it is, and SIGINT for
    # an exception in whatever it does.
    signum = SIGTERM if stop is None or stop.asked_by else stop.signum
    match state.stage:
        case Stage.RUNNING | Stage.PARKING if state.alive:
            return _stop_ranks(state, at_s, wish, signum)
        case Stage.SETTLING | Stage.CAPTURING if state.alive:
            return enter.terminate_failed(state, at_s, signum)
        case Stage.TERMINATING if state.succeeded:
            return enter.kill(state, at_s)
        case Stage.PREPARING | Stage.RUNNING | Stage.SETTLING | Stage.CAPTURING:
            return enter.kill(state, at_s)
        case Stage.PARKING | Stage.TERMINATING | Stage.KILLING | Stage.OVER:
            return state, ()
        case Stage.DECIDING:
            return enter.over(state)
        case _:
            assert_never(state.stage)


def _kill_now(state: State, at_s: float) -> Decision:
    match state.stage:
        case Stage.KILLING | Stage.OVER:
            return state, ()
        case Stage.DECIDING:
            return enter.over(state)
        case _:
            return enter.kill(state, at_s)


def _further_stop(state: State, event: ev.Signalled, stop: Stop) -> Decision:
    """Hurry; the first signal after a limit or a rank's wish is no impatience yet."""
    if state.stage not in {Stage.PARKING, Stage.TERMINATING} or stop.times == 1:
        return state, ()
    if event.signum == SIGINT or stop.times > 2:  # noqa: PLR2004
        return enter.kill(state, event.at_s)
    soon_s = min(state.kill_s, event.at_s + SECOND_STOP_S)
    hurried, orders = enter.hasten(state, event.signum, soon_s)
    had_it = state.stage is Stage.TERMINATING and event.signum == stop.signum
    return hurried, () if had_it else orders


def _stop_ranks(state: State, at_s: float, wish: Parking, signum: int) -> Decision:
    """Park them, now or already, if each of them is there and stops itself."""
    if state.parking is not None:
        return state._replace(parking=_greater(state.parking, wish)), ()
    if not state.ended and state.alive <= state.self_stopping:
        return _park(state, at_s, wish)
    return enter.terminate(state, at_s, signum)


def _park(state: State, at_s: float, wish: Parking) -> Decision:
    kill_s = at_s + state.spec.grace_s
    parked = state._replace(stage=Stage.PARKING, parking=wish, kill_s=kill_s)
    return _freeze(parked._replace(deadline_s=parked_until(parked)), at_s)


def _freeze(state: State, at_s: float) -> Decision:
    """Freeze the page of a parked attempt once every rank heeds it.

    Until then a rank that waits at its check would hold up one that never comes to its
    own.
    """
    parking = state.parking
    if state.stage is not Stage.PARKING or parking is None or parking.frozen:
        return state, ()
    if not state.alive <= state.self_stopping:
        return state, ()
    until_s = parked_until(state)
    frozen = state._replace(
        parking=parking._replace(frozen=True),
        deadline_s=min(until_s, at_s + FREEZE_S),
    )
    return frozen, (cmd.FreezePage("freeze_page", state.attempt, until_s),)


def _greater(parking: Parking, wish: Parking) -> Parking:
    """Return the wish that counts, while none is published."""
    if parking.check is not None:
        return parking
    new, old = weight(wish), weight(parking)
    reworded = new == old and wish.rank == parking.rank and not parking.reason
    return wish._replace(frozen=parking.frozen) if new > old or reworded else parking


def _not_heeded(state: State, at_s: float) -> Obstacle:
    """Return what is wrong where ranks did not come to a stop that a rank wanted."""
    wish = state.parking or Parking("user", NOBODY, "")
    failed = wish.kind == "error"
    did = "has a deferred error" if failed else "wanted a stop"
    why = f" ({wish.reason})" if wish.reason else ""
    left, size = len(state.alive), state.spec.world_size
    reason = (
        f"rank {wish.rank} {did}{why}, and {left} of {size} ranks did not come to it "
        f"within {state.spec.grace_s / 2:g} s"
    )
    return Obstacle("python_exception" if failed else "hang", 1, reason, at_s)
