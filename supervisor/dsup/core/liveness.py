"""Liveness: which ranks are frozen, asleep, silent or stalled, and since when. Pure.

Theory
------
A watch is folded over looks, one a second or so; only findings reach the state machine.
*Suspected* does no harm: stacks are taken, people are told. It comes after three
learned step times without a step (2 s at least), at once for a frozen rank. *Confirmed*
is acted upon, and wants more: a rank that is frozen or sleeps in the kernel for a
minute; ranks that wait in a collective while others never came, for a minute and five
times the longest step of this attempt; or a phase that outlasts its limit.

A step time is learned from this attempt's own steps: their median, so that an
evaluation in every hundredth step does not move it. A pause that has passed by itself
is learned, too: what a loop has survived once is no reason for suspicion again. Limits
widen with the strain of the node, and start again after whatever stops the agent itself
(the machine's ``LoopStalled``), since then nobody has looked. While a rank evaluates,
saves or finishes, those that train may wait for it: it has a limit, and they have none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Literal, NamedTuple, TypeAlias, get_args

from dsup.core.limits import Limits
from dsup.core.pulse import (
    FLOOR_S,
    LONGEST_TIMES,
    Look,
    Pulse,
    excused,
    limit_of,
    looked_at,
    patience_s,
    waits_for,
)

Kind: TypeAlias = Literal["frozen", "asleep", "idle", "still", "silent", "stalled"]
"""State T; state D; of ranks that tell nothing, those that ``stillness`` has found; no
heartbeat; heartbeats but no step."""

FROZEN_S: Final = 60.0
ASLEEP_SUSPECT_S: Final = 10.0
ABSENT_S: Final = 60.0

TRACED_SUSPECT_S: Final = 2.0
"""A debugger that looks for a moment stops a process for less."""

_FROZEN: Final = frozenset("Tt")
_TRACED: Final = "t"
_ASLEEP: Final = "D"
_STILL: Final = _FROZEN | {_ASLEEP}
_BY_STATE: Final = frozenset({"frozen", "asleep"})
_FOR_PEOPLE: Final = frozenset({"idle", "still"})
"""Nothing is done on these, whatever stacks show."""


class Suspicion(NamedTuple):
    """A rank that is suspected to hang.

    Attributes:
        since_s: when its last sign of life or progress was.
        limit_s: what it has outlasted, seconds.
    """

    rank: int
    kind: Kind
    since_s: float
    limit_s: float
    phase: str = ""
    step: int | None = None


class Absence(NamedTuple):
    """What stacks have shown: these ranks did not come where all others wait.

    Attributes:
        ranks: who did not come.
        since_s: since when that is so.
        place: where the first of them is.
        seen_s: when stacks have last shown it; nothing has moved in between.
    """

    ranks: tuple[int, ...]
    since_s: float
    place: str = ""
    seen_s: float = 0.0


class Finding(NamedTuple):
    """News for the state machine.

    Attributes:
        ranks: whom it is about, those suspected for the strongest reason.
    """

    kind: Literal["suspected", "cleared", "confirmed"]
    ranks: tuple[int, ...]
    why: str
    suspicions: tuple[Suspicion, ...] = ()


class Watch(NamedTuple):
    """Everything that is remembered of an attempt.

    Attributes:
        suspected: by rank.
        still: who does nothing, of ranks that tell nothing; see ``stillness``.
        absent: what the last stacks have shown; None where nobody was missing.
        confirmed: it was said; there is nothing more to say until that has passed.
    """

    limits: Limits = Limits()
    pulses: Mapping[int, Pulse] = {}
    suspected: Mapping[int, Suspicion] = {}
    still: Mapping[int, Suspicion] = {}
    absent: Absence | None = None
    confirmed: bool = False


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
    absent = watch.absent if watch.absent and suspected else None
    said = watch.confirmed and bool(suspected)
    after = watch._replace(
        pulses=pulses, suspected=suspected, absent=absent, confirmed=said
    )
    found = tuple(_news(watch, after))
    confirmed = None if said else _confirmed(after, now_s, strain)
    if confirmed is not None:
        return after._replace(confirmed=True), (*found, confirmed)
    return after, found


def _looked_at(watch: Watch, looks: Iterable[Look], now_s: float) -> dict[int, Pulse]:
    """Return all pulses; who may wait for a rank that evaluates or saves is excused."""
    before = watch.pulses
    pulses = {
        look.rank: looked_at(before.get(look.rank), look, now_s) for look in looks
    }
    # Those of before as well: whoever waited until now has had no time for a step yet.
    if waits_for((*before.values(), *pulses.values()), watch.limits, now_s):
        return {rank: excused(pulse, now_s) for rank, pulse in pulses.items()}
    return pulses


def calm_until_s(watch: Watch) -> float:
    """Return until when looks that show nothing new can bring no news, agent clock.

    Overload only puts it off. Minus infinity where every look counts.
    """
    still = any(p.look.state in _STILL for p in watch.pulses.values())
    if watch.suspected or still:
        return float("-inf")
    patience = (
        (pulse.since_s, patience_s(pulse, watch.limits))
        for pulse in watch.pulses.values()
    )
    dues = [since_s + limit_s for since_s, limit_s in patience if limit_s is not None]
    return min(dues, default=float("inf"))


def rested(watch: Watch, now_s: float) -> Watch:
    """Return a watch whose limits start again: nobody has looked for a while."""
    pulses = {
        rank: pulse._replace(since_s=now_s, state_s=now_s, cpu_s=pulse.look.cpu_s)
        for rank, pulse in watch.pulses.items()
    }
    return watch._replace(pulses=pulses, still={}, absent=None)


def _suspicion(
    pulse: Pulse, limits: Limits, now_s: float, strain: float
) -> Suspicion | None:
    look = pulse.look
    held_s = TRACED_SUSPECT_S if look.state == _TRACED else 0.0
    if look.state in _FROZEN and now_s - pulse.state_s >= held_s:
        return _suspect(pulse, "frozen", pulse.state_s, held_s)
    idle = look.cpu_s <= pulse.cpu_s
    if look.state == _ASLEEP and idle and now_s - pulse.state_s >= ASLEEP_SUSPECT_S:
        return _suspect(pulse, "asleep", pulse.state_s, ASLEEP_SUSPECT_S)
    if now_s - pulse.since_s <= FLOOR_S:
        return None
    limit_s = patience_s(pulse, limits)
    if limit_s is None or now_s - pulse.since_s <= limit_s * strain:
        return None
    beat_s = look.heartbeat_s
    silent = beat_s is None or now_s - beat_s > limit_s * strain
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
    known = {(s.rank, s.kind) for s in before.values()}
    told = {(s.rank, s.kind) for s in after.values() if s.kind in _BY_STATE}
    return bool(told - known)


def strongest(suspected: Mapping[int, Suspicion]) -> list[Suspicion]:
    """Return those suspected for the strongest reason, of stalled ones those behind."""
    order = get_args(Kind)
    kind = min((s.kind for s in suspected.values()), key=order.index)
    alike = [s for _, s in sorted(suspected.items()) if s.kind == kind]
    if kind in _BY_STATE:
        return alike
    least = min(-1 if s.step is None else s.step for s in alike)
    return [s for s in alike if (-1 if s.step is None else s.step) == least]


def _confirmed(watch: Watch, now_s: float, strain: float) -> Finding | None:
    if any(pulse.look.state == _TRACED for pulse in watch.pulses.values()):
        return None  # somebody debugs a rank, and the others wait for that
    # Overload freezes nobody: somebody has sent a signal.
    for kind, lasts_s in (("frozen", FROZEN_S), ("asleep", FROZEN_S * strain)):
        long = [
            s
            for s in watch.suspected.values()
            if s.kind == kind and now_s - s.since_s >= lasts_s
        ]
        if long:
            return Finding("confirmed", tuple(s.rank for s in long), kind, tuple(long))
    told = any(s.kind not in _FOR_PEOPLE for s in watch.suspected.values())
    if watch.absent is not None and told:
        longest_s = max((p.longest_s for p in watch.pulses.values()), default=0.0)
        patience_s = max(ABSENT_S, LONGEST_TIMES * longest_s) * strain
        # Seen once more, late: whoever came since then is waited for no longer.
        proven_s = watch.absent.seen_s - watch.absent.since_s
        if now_s - watch.absent.since_s >= patience_s <= 2 * proven_s:
            return Finding("confirmed", watch.absent.ranks, "absent")
    over = [
        s
        for rank, s in watch.suspected.items()
        if _outlasted(watch.pulses[rank], watch.limits, now_s, strain)
    ]
    if not over:
        return None
    suspects = strongest({s.rank: s for s in over})
    return Finding(
        "confirmed", tuple(s.rank for s in suspects), "limit", tuple(suspects)
    )


def _outlasted(pulse: Pulse, limits: Limits, now_s: float, strain: float) -> bool:
    limit_s = limit_of(pulse, limits)
    return limit_s is not None and now_s - pulse.since_s > limit_s * strain
