"""Liveness: which ranks are frozen, asleep, silent or stalled, and since when. Pure.

Theory
------
A watch is folded over looks, one a second or so; only findings reach the state machine.
*Suspected* does no harm: stacks are taken, people are told. It comes after three
learned step times without a step (2 s at least), at once for a frozen rank. *Confirmed*
is acted upon, and wants more: a rank that is frozen or sleeps in the kernel for a
minute; ranks that wait in a collective while others never came, for a minute and five
times the longest step of this attempt; or a phase that outlasts its limit.

How step times are learned says ``pulse``, what follows from them ``patience``. Limits
widen with the strain of the node, and whatever stops the agent itself (the machine's
``LoopStalled``) counts for nobody, since then nobody has looked. While a rank
evaluates, saves or finishes, those that train may wait for it: it has a limit, and they
have none until then.

Whoever does something need not hang, step or no step: ``activity``. Of a rank that is
at work nothing but a limit that was given, or ``AT_WORK_S`` in which all others wait
for it, is acted upon.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from dsup.core import activity, pulse
from dsup.core.confirming import TRACED, confirmed
from dsup.core.limits import Limits
from dsup.core.patience import excuse_s, excused, patience_s
from dsup.core.pulse import FLOOR_S, Look, Pulse
from dsup.core.watch import (
    BY_STATE,
    FOR_PEOPLE,
    Finding,
    Kind,
    Suspicion,
    Watch,
    strongest,
)

ASLEEP_SUSPECT_S: Final = 10.0
WAITING_S: Final = 300.0
"""Shorter than any time-out that PyTorch has by default."""

TRACED_SUSPECT_S: Final = 2.0
"""A debugger that looks for a moment stops a process for less."""

_FROZEN: Final = frozenset("Tt")
_ASLEEP: Final = "D"
_STILL: Final = _FROZEN | {_ASLEEP}


def observe(
    watch: Watch, looks: Iterable[Look], now_s: float, strain: float = 1.0
) -> tuple[Watch, tuple[Finding, ...]]:
    """Fold one look at every rank that runs into a watch.

    Args:
        watch: as it was.
        looks: of ranks that have not ended.
        now_s: agent clock, seconds.
        strain: by what the node's overload stretches everything; 1 for none.

    Returns:
        The watch as it is now, and what is news.
    """
    pulses = _looked_at(watch, looks, now_s)
    suspected = {
        rank: suspicion
        for rank, pulse in pulses.items()
        if (suspicion := _suspicion(pulse, watch.limits, now_s, strain)) is not None
        or (suspicion := _kept(watch.suspected.get(rank), pulse)) is not None
    }
    still = {rank: doubt for rank, doubt in watch.still.items() if rank in pulses}
    suspected = still | suspected
    absent = watch.absent if suspected else None
    if absent and _went_on(watch.pulses, pulses, absent.ranks):
        absent = None
    said = watch.confirmed and bool(suspected)
    after = watch._replace(
        pulses=pulses,
        suspected=suspected,
        absent=absent,
        confirmed=said,
        left=watch.left or not watch.pulses.keys() <= pulses.keys(),
    )
    found = tuple(_news(watch, after))
    proof = None if said else confirmed(after, now_s, strain)
    if proof is not None:
        return after._replace(confirmed=True), (*found, proof)
    return after, found


def _looked_at(watch: Watch, looks: Iterable[Look], now_s: float) -> dict[int, Pulse]:
    """Return all pulses; who may wait for a rank that evaluates or saves is excused."""
    before = watch.pulses
    pulses = {
        look.rank: pulse.looked_at(before.get(look.rank), look, now_s) for look in looks
    }
    if any(not one.look.phase for one in pulses.values()):
        pulses = _heard(watch, pulses, now_s)
    # Those of before as well: whoever waited until now has had no time for a step yet.
    for_s = excuse_s((*before.values(), *pulses.values()), watch.limits, now_s)
    if for_s is not None:
        return {rank: excused(one, for_s, now_s) for rank, one in pulses.items()}
    return pulses


def _heard(watch: Watch, pulses: dict[int, Pulse], now_s: float) -> dict[int, Pulse]:
    """Return pulses, where ranks that tell nothing may live by other signs.

    Output of any rank of the node is one, since often one alone prints; and so is work
    of their own.
    """
    heard = _went_on(watch.pulses, pulses)
    after = dict(pulses)
    for rank, one in pulses.items():
        if one.look.phase:
            continue
        own_s = watch.active[rank].lively_s if rank in watch.active else one.since_s
        since_s = now_s if heard else max(one.since_s, own_s)
        after[rank] = one._replace(since_s=since_s)
    return after


def _went_on(
    before: Mapping[int, Pulse],
    after: Mapping[int, Pulse],
    but: Collection[int] = (),
) -> bool:
    """Return whether a rank that was known has shown progress since."""
    return any(
        rank in before and one.moved_s > before[rank].moved_s
        for rank, one in after.items()
        if rank not in but
    )


def calm_until_s(watch: Watch) -> float:
    """Return until when looks that show nothing new can bring no news, agent clock.

    Overload only puts it off. Minus infinity where every look counts.
    """
    still = any(one.look.state in _STILL for one in watch.pulses.values())
    if watch.suspected or still:
        return float("-inf")
    patience = (
        (one.since_s, patience_s(one, watch.limits)) for one in watch.pulses.values()
    )
    dues = [since_s + limit_s for since_s, limit_s in patience if limit_s is not None]
    return min(dues, default=float("inf"))


def rested(watch: Watch, for_s: float) -> Watch:
    """Return a watch for which that time has not passed: nobody has looked.

    Whatever was suspected or shown by stacks stays so; a step is seen at the next look.
    """
    absent = watch.absent and watch.absent._replace(
        since_s=watch.absent.since_s + for_s, seen_s=watch.absent.seen_s + for_s
    )
    return watch._replace(
        pulses={r: pulse.shifted(one, for_s) for r, one in watch.pulses.items()},
        suspected=_shifted(watch.suspected, for_s),
        still=_shifted(watch.still, for_s),
        absent=absent,
        active=activity.shifted(watch.active, for_s),
    )


def _shifted(doubts: Mapping[int, Suspicion], by_s: float) -> dict[int, Suspicion]:
    return {r: s._replace(since_s=s.since_s + by_s) for r, s in doubts.items()}


def _suspicion(
    pulse: Pulse, limits: Limits, now_s: float, strain: float
) -> Suspicion | None:
    look = pulse.look
    held_s = TRACED_SUSPECT_S if look.state == TRACED else 0.0
    if look.state in _FROZEN and now_s - pulse.state_s >= held_s:
        return _suspect(pulse, "frozen", pulse.state_s, held_s)
    idle = look.cpu_s <= pulse.cpu_s
    if look.state == _ASLEEP and idle and now_s - pulse.state_s >= ASLEEP_SUSPECT_S:
        return _suspect(pulse, "asleep", pulse.state_s, ASLEEP_SUSPECT_S)
    if pulse.excused and now_s - pulse.moved_s > WAITING_S * strain:
        return _suspect(pulse, "waiting", pulse.moved_s, WAITING_S)
    if now_s - pulse.since_s <= FLOOR_S:
        return None
    limit_s = patience_s(pulse, limits, strain)
    if limit_s is None or now_s - pulse.since_s <= limit_s:
        return None
    beat_s = look.heartbeat_s
    silent = beat_s is None or now_s - beat_s > limit_s
    return _suspect(pulse, "silent" if silent else "stalled", pulse.since_s, limit_s)


def _kept(before: Suspicion | None, pulse: Pulse) -> Suspicion | None:
    """Return a suspicion that nothing has refuted: more overload is no progress."""
    step = before is not None and before.kind in {"silent", "stalled"}
    return before if before and step and before.since_s == pulse.since_s else None


def _suspect(pulse: Pulse, kind: Kind, since_s: float, limit_s: float) -> Suspicion:
    look = pulse.look
    return Suspicion(look.rank, kind, since_s, limit_s, look.phase, look.step)


def _news(before: Watch, after: Watch) -> Iterable[Finding]:
    if _is_stronger(before.suspected, after.suspected):
        suspects = strongest(after.suspected)
        ranks = tuple(s.rank for s in suspects)
        yield Finding("suspected", ranks, suspects[0].kind, tuple(suspects))
    elif before.suspected and not after.suspected:
        yield Finding("cleared", tuple(sorted(before.suspected)), "progress")


def _is_stronger(
    before: Mapping[int, Suspicion], after: Mapping[int, Suspicion]
) -> bool:
    """Return whether a suspicion is new, or names what those before it did not.

    Ranks that wait for others fall silent, one after the other; that one of them is
    frozen, or sleeps in the kernel, is the news.
    """
    if not after or not before:
        return bool(after)
    if not any(s.kind not in FOR_PEOPLE for s in before.values()):
        return any(s.kind not in FOR_PEOPLE for s in after.values())
    known = {(s.rank, s.kind) for s in before.values()}
    told = {(s.rank, s.kind) for s in after.values() if s.kind in BY_STATE}
    return bool(told - known)
