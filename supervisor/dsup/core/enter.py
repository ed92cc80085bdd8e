"""Ways into a stage: the state it begins in, and the orders that go with it.

Which of them is taken, and when, is ``machine``'s business. All times are the agent's
clock, seconds.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from dsup.core import commands as cmd
from dsup.core import events as ev
from dsup.core import outcome
from dsup.core.exits import SIGTERM, is_decisive
from dsup.core.state import NEVER, Obstacle, Stage, State
from dsup_runtime.contract import AT_ONCE

ALIKE_S: Final = 0.1
PREPARE_S: Final = 60.0
KILL_S: Final = 5.0
CAPTURE_S: Final = 10.0
LINGER_S: Final = 1.0
SCAN_S: Final = 30.0

Decision: TypeAlias = tuple[State, tuple[cmd.Command, ...]]


def prepare(state: State, at_s: float) -> Decision:
    """Have an attempt made ready."""
    preparing = state._replace(
        stage=Stage.PREPARING, deadline_s=at_s + PREPARE_S, started_s=at_s
    )
    return preparing, (cmd.Prepare("prepare", preparing.attempt),)


def settle(state: State, at_s: float, settle_s: float) -> Decision:
    """Listen to the ranks that are left."""
    return state._replace(stage=Stage.SETTLING, deadline_s=at_s + settle_s), ()


def capture(state: State, at_s: float) -> Decision:
    """Have the stacks of all ranks taken, before a signal destroys what they show."""
    capturing = state._replace(stage=Stage.CAPTURING, deadline_s=at_s + CAPTURE_S)
    return capturing, (cmd.Capture("capture", state.attempt, final=True),)


def after_death(state: State, event: ev.RankExited) -> Decision:
    """Answer the first failure of an attempt, with ranks left to hear of it."""
    if is_decisive(event.status):
        return terminate_failed(state, event.at_s)
    settle_s = ALIKE_S if state.noted else state.spec.settle_s
    return settle(state, event.at_s, min(settle_s, state.spec.settle_s))


def terminate(state: State, at_s: float, signum: int) -> Decision:
    """Ask the ranks that are left to end."""
    grace_s = state.spec.grace_s
    next_look_s = at_s + (grace_s if signum == SIGTERM else grace_s / 2)
    terminating = state._replace(
        stage=Stage.TERMINATING, deadline_s=next_look_s, kill_s=at_s + grace_s
    )
    return terminating, (signal_all(state, signum),)


def terminate_failed(state: State, at_s: float, signum: int = SIGTERM) -> Decision:
    """End what is left of a failed attempt, and have judged what was seen so far."""
    terminating, orders = terminate(state, at_s, signum)
    return terminating, (_tell_lost(terminating), *orders, _judge(state))


def hasten(state: State, signum: int, kill_s: float) -> Decision:
    """Ask the ranks that are left to end, in what is left of a grace."""
    terminating = state._replace(
        stage=Stage.TERMINATING, deadline_s=kill_s, kill_s=kill_s
    )
    return terminating, (signal_all(state, signum),)


def hasten_failed(state: State) -> Decision:
    """End what is left of a failed attempt in its grace, and have it judged.

    Ranks that wait for a check to be published, after a death, are told that none is.
    """
    terminating, orders = hasten(state, SIGTERM, state.kill_s)
    parking = state.parking
    waits = state.failed is not None and parking is not None and parking.check is None
    lost = (_tell_lost(terminating),) if waits else ()
    return terminating, (*lost, *orders, _judge(state))


def leave(state: State, at_s: float) -> Decision:
    """Every rank succeeded: see to what they have left behind."""
    succeeded = state._replace(succeeded=True)
    if state.spec.keep_helpers:
        return over(succeeded)
    kill_s = at_s + state.spec.grace_s
    return succeeded._replace(
        stage=Stage.TERMINATING, deadline_s=kill_s, kill_s=kill_s
    ), ()


def linger(state: State, at_s: float) -> Decision:
    """Let helpers end by themselves: one of them unlinks the ranks' shared memory."""
    failed = state.failed is not None or state.hang is not None
    first = state.stage is not Stage.TERMINATING and failed
    until_s = min(state.kill_s, at_s + LINGER_S)
    lingering = state._replace(
        stage=Stage.TERMINATING, deadline_s=until_s, kill_s=until_s
    )
    return lingering, (_judge(state),) if first else ()


def kill(state: State, at_s: float) -> Decision:
    """Kill everything that is left."""
    killing = state._replace(stage=Stage.KILLING, deadline_s=at_s + KILL_S)
    return killing, (cmd.KillAll("kill_all", state.attempt),)


def deciding(state: State, at_s: float) -> Decision:
    """Close the attempt, and find out what a plan needs to know."""
    state = state._replace(
        stage=Stage.DECIDING,
        deadline_s=at_s + SCAN_S,
        awaited=frozenset({"scanned", "judged"}),
    )
    scan = cmd.Scan("scan", state.attempt)
    return state, (_close(state), scan, _judge(state, final=True))


def over(state: State) -> Decision:
    """End the run."""
    code, origin = outcome.exit_of(state)
    closed = () if state.stage is Stage.DECIDING else (_close(state),)
    ended = state._replace(stage=Stage.OVER, deadline_s=NEVER, limit_s=NEVER)
    return ended, (*closed, cmd.Exit("exit", code, origin))


def over_stuck(state: State, stuck: Obstacle) -> Decision:
    """End a run whose processes do not."""
    ended, orders = over(state._replace(cannot=stuck))
    return ended, (_judge(state, final=True), *orders)


def signal_all(state: State, signum: int) -> cmd.SignalRanks:
    """Return the order to signal every rank that is left."""
    ranks = tuple(sorted(state.alive))
    return cmd.SignalRanks("signal_ranks", state.attempt, ranks, signum)


def _tell_lost(state: State) -> cmd.PublishStop:
    """Return the order to tell the ranks that no step can be agreed any more.

    Those whose loops ask for one would go on until the kill.
    """
    rank, reason = outcome.lost(state)
    return cmd.PublishStop(
        "publish_stop", state.attempt, AT_ONCE, "peer", rank, reason, state.kill_s
    )


def _close(state: State) -> cmd.CloseAttempt:
    return cmd.CloseAttempt("close_attempt", state.attempt)


def _judge(state: State, *, final: bool = False) -> cmd.Judge:
    return cmd.Judge("judge", state.attempt, final)
