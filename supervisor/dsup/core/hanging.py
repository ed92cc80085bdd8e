"""What a hang does to an attempt: it is doubted, looked at, and at last ended for it.

Theory of operation
-------------------
A suspicion does no harm: it is remembered, for people, and the stacks of all ranks are
taken; whoever goes on clears it. Only a confirmed hang is acted upon, and only while
the ranks run: in any other stage they are on their way out, with a deadline. Then the
stacks are taken once more before anybody is signalled, since a signal destroys what
they show. That takes ``CAPTURE_S`` at most: a rank that is frozen, or sleeps in the
kernel, answers nobody. Ranks that go on meanwhile hang no longer, and none of them was
signalled: the attempt goes on, too. After the first signal nothing calls its end off.
"""

from __future__ import annotations

from typing import Final

from dsup.core import commands as cmd
from dsup.core import enter
from dsup.core import events as ev
from dsup.core.enter import Decision
from dsup.core.state import NEVER, Hang, Stage, State

_KERNEL: Final = frozenset({"frozen", "asleep"})
"""What the kernel says of a rank goes before what follows from it."""


def on_suspected(state: State, event: ev.HangSuspected) -> Decision:
    """Remember it, and have the stacks taken."""
    if state.stage is not Stage.RUNNING:
        return state, ()
    doubt = Hang(event.ranks, event.why, event.at_s)
    order = cmd.Capture("capture", state.attempt, final=False)
    return state._replace(suspected=doubt), (order,)


def on_cleared(state: State, _: ev.HangCleared) -> Decision:
    """Forget it; an end that was decided upon is called off if nobody has failed."""
    state = state._replace(suspected=None)
    failed = any(end.status for end in state.ended)
    if state.stage is not Stage.CAPTURING or failed:
        return state, ()
    running = state._replace(stage=Stage.RUNNING, hang=None, deadline_s=NEVER)
    return running, ()


def on_confirmed(state: State, event: ev.HangConfirmed) -> Decision:
    """End the attempt, unless hangs are to be reported only."""
    if state.stage is not Stage.RUNNING or not state.alive:
        return state, ()
    hang, doubt = Hang(event.ranks, event.why, event.at_s), state.suspected
    if doubt is not None and doubt.why == "absent" and event.why == "limit":
        hang = doubt._replace(at_s=event.at_s)  # all outlast a limit, stacks tell whose
    elif doubt is not None and doubt.ranks == event.ranks:
        why = doubt.why if doubt.why in _KERNEL else event.why
        hang = hang._replace(why=why, op=doubt.op, place=doubt.place)
    if state.spec.on_hang == "report":
        return state._replace(suspected=hang), ()
    return enter.capture(state._replace(hang=hang), event.at_s)


def on_captured(state: State, event: ev.Captured) -> Decision:
    """End an attempt that was looked at before its end; else remember what it shows."""
    if event.final:
        if state.stage is not Stage.CAPTURING:
            return state, ()
        return enter.terminate_failed(state, event.at_s)
    if state.suspected is None:
        return state, ()
    return state._replace(suspected=_seen(state.suspected, event)), ()


def _seen(doubt: Hang, event: ev.Captured) -> Hang:
    """Return a suspicion as stacks leave it: who was missing may have come by now."""
    if event.ranks:
        same = doubt.why in _KERNEL and doubt.ranks == event.ranks
        why = doubt.why if same else "absent"
        return Hang(event.ranks, why, event.at_s, event.op, event.place)
    if doubt.why != "absent":
        return doubt
    return Hang(doubt.ranks, "stalled", event.at_s)


def on_straggles(state: State, event: ev.Straggles) -> Decision:
    """Remember who is slow."""
    others = state.slow - {event.rank}
    slow = others | {event.rank} if event.times else others
    return state._replace(slow=slow), ()


def on_end(state: State, event: ev.RankExited) -> Decision:
    """Answer the end of a rank while CAPTURING; the state knows of it already."""
    if state.alive:
        return state, ()
    ends = state.ended
    if len(ends) == state.spec.world_size and all(end.status == 0 for end in ends):
        return enter.leave(state._replace(hang=None), event.at_s)
    return enter.linger(state, event.at_s)
