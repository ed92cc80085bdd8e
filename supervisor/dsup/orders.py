"""What the state machine orders, and which edges carry it out: a row an order."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from dsup import crew
from dsup.core import commands as cmd
from dsup.core import events as ev
from dsup.edges import group
from dsup.linux import tree

if TYPE_CHECKING:
    from dsup.parts import Parts


def carry_out(parts: Parts, order: cmd.Command) -> None:
    """Have an order carried out by whoever does such things."""
    CARRIED_OUT_BY[type(order)](parts, order)


def _prepare(parts: Parts, order: cmd.Prepare) -> None:
    if order.attempt:  # nothing can have run out before the first
        parts.provision.spend()
    parts.attempt.prepare(order.attempt)
    parts.inquiry.begin(order.attempt, parts.attempt.tmp_dir)


def _spawn(parts: Parts, _: cmd.Spawn) -> None:
    crew.start(parts)


def _signal(parts: Parts, order: cmd.SignalRanks) -> None:
    parts.inquiry.file.before_signal(order.ranks)
    parts.group.signal(order.ranks, order.signum)


def _park(
    parts: Parts, order: cmd.FreezePage | cmd.CountChecks | cmd.PublishStop
) -> None:
    parts.stops.carry_out(order)
    parts.inquiry.file.stopped(order)


def _pass_on(parts: Parts, order: cmd.PassOn) -> None:
    deaf = parts.group.pass_on(order.ranks, order.signum)
    parts.recorder.say_deaf(deaf, order.signum)


def _capture(parts: Parts, order: cmd.Capture) -> None:
    parts.provision.spend()
    parts.hangs.capture(parts.state.alive, final=order.final)


def _terminate_helpers(parts: Parts, _: cmd.TerminateHelpers) -> None:
    group.terminate_helpers(parts.spared)


def _kill(parts: Parts, _: cmd.KillAll) -> None:
    parts.provision.spend()
    parts.inquiry.file.before_signal(parts.state.alive)
    parts.attempt.cgroups.kill()
    tree.kill(parts.spared, owned=parts.owned)
    # Them it reaches also if nothing can be opened, and so nobody be seen.
    parts.group.signal(parts.state.alive, signal.SIGKILL)


def _close(parts: Parts, _: cmd.CloseAttempt) -> None:
    parts.inquiry.close(parts.state, parts.attempt.page)
    kept = parts.state.succeeded and parts.job.spec.keep_helpers
    parts.attempt.close(keep_tmp=kept)
    parts.hangs.close()


def _scan(parts: Parts, _: cmd.Scan) -> None:
    """Look for a checkpoint; what has happened so far is told meanwhile.

    Where no rank has run yet there is no scribe, and the next attempt needs one.
    """
    with suppress(OSError):  # then it is tried again with the next ranks
        parts.recorder.start(parts.state.attempt, ())
    parts.attempt.scan()


def _judge(parts: Parts, order: cmd.Judge) -> None:
    met, file = parts.state.cannot, parts.inquiry.file
    file.obstacle = (met.cause, met.reason) if met else None
    parts.hangs.testify(file, parts.state)
    file.look_closely(parts.attempt.page)
    parts.inquiry.judge(final=order.final)


def _agree(parts: Parts, order: cmd.Propose) -> None:
    """One node agrees with itself; a pause may follow, or the end."""
    parts.provision.hold()
    parts.post(ev.PlanAgreed("plan_agreed", time.monotonic(), *order[1:]))


def _exit(parts: Parts, order: cmd.Exit) -> None:
    parts.provision.spend()
    parts.exit_code = order.code
    parts.onlookers.ending()
    parts.inquiry.end(order.code, order.origin)


CARRIED_OUT_BY: Final[Mapping[type[cmd.Command], Callable[[Parts, Any], None]]] = {
    cmd.Prepare: _prepare,
    cmd.Spawn: _spawn,
    cmd.SignalRanks: _signal,
    cmd.FreezePage: _park,
    cmd.CountChecks: _park,
    cmd.PublishStop: _park,
    cmd.PassOn: _pass_on,
    cmd.Capture: _capture,
    cmd.TerminateHelpers: _terminate_helpers,
    cmd.KillAll: _kill,
    cmd.CloseAttempt: _close,
    cmd.Scan: _scan,
    cmd.Judge: _judge,
    cmd.Propose: _agree,
    cmd.Exit: _exit,
}
