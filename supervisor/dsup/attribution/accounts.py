"""What each rank's end amounts to, before anybody asks which one was first.

An account holds only what was there before dsup's own signal: what a rank does after
that is dsup's doing. Times are intervals, because the agent sees an end only when it
looks, and the kernel takes a large process down slowly.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final, Literal, NamedTuple, TypeAlias

from dsup.attribution.timeline import End, Timeline
from dsup.attribution.wording import CAST_OFF
from dsup.core.exits import DECISIVE_SIGNALS, SIGKILL
from dsup.facts.error_words import PEER_TYPES
from dsup.facts.errors import communication
from dsup.facts.kernel import KernelFault
from dsup.facts.output import LastWords
from dsup.facts.raised import Raised

Sort: TypeAlias = Literal[
    "none", "clean", "communication", "exception", "signal", "abort", "exit"
]
"""How a rank ended by itself: not at all; with 0; of a peer's end; of an exception of
its own; of a signal; of SIGABRT, saying why; of anything else, saying nothing."""

SIGABRT: Final = 6
OOM_KINDS: Final = frozenset({"oom_memcg", "oom_global"})
CRASH_S: Final = 0.1
"""A crash begins so long before its end is seen: stacks are printed, a core written."""

KERNEL_CLOCK_S: Final = 2.0
"""The kernel's clock and CLOCK_MONOTONIC may differ by this much."""

HANDED_S: Final = 5.0
"""A program that hands an exception to the hook and means to end does so by then."""

NO_WORDS: Final = LastWords()
_INTERRUPTS: Final = frozenset({"KeyboardInterrupt", "SystemExit"})
_FINISHED: Final = frozenset("ZX")


class Account(NamedTuple):
    """What is known of one rank, from before any signal of dsup's.

    Attributes:
        pid: its process id; None where nobody said.
        end: its end; None while it runs.
        own: whether it ended before dsup signalled it.
        told: the exception that ended it, from the strongest source.
        how: kind of communication error it ended of; empty for none.
        from_s: it began to end at this time or later, agent clock, seconds.
        until_s: and at this time or before.
    """

    rank: int
    pid: int | None
    end: End | None
    own: bool
    sort: Sort
    told: Raised | None
    how: str
    from_s: float
    until_s: float

    @property
    def status(self) -> int:
        """Its own exit code or minus its signal; 1 where it has no end of its own."""
        return self.end.status if self.end and self.own else 1

    @property
    def strong(self) -> bool:
        """Whether no other rank's end leads to such an end."""
        return self.sort in {"exception", "signal", "abort"}

    @property
    def failed(self) -> bool:
        """Whether it failed by itself, for whatever reason."""
        return self.sort not in {"none", "clean"}


class _Rank(NamedTuple):
    """The raw facts that one account is made of."""

    rank: int
    pid: int | None
    end: End | None
    own: bool
    killed: KernelFault | None


def accounts(timeline: Timeline) -> tuple[Account, ...]:
    """Return what is known of each rank that ended, stood, or told something."""
    known = (
        *(end.rank for end in timeline.ends),
        *(stood.rank for stood in timeline.standing),
        *(raised.rank for raised in timeline.raised),
    )
    return tuple(_account(timeline, rank) for rank in sorted(set(known)))


def leaders(timeline: Timeline) -> tuple[Account, ...]:
    """Return the strong accounts that no other strong one is known to go before."""
    return earliest(a for a in accounts(timeline) if a.strong)


def earliest(candidates: Iterable[Account]) -> tuple[Account, ...]:
    """Return those that may have been the first, by rank; intervals tell, not order."""
    chosen = tuple(candidates)
    limit_s = min((a.until_s for a in chosen), default=0.0)
    return tuple(a for a in chosen if a.from_s <= limit_s)


def all_are_victims(timeline: Timeline) -> bool:
    """Return whether every rank that failed died of a communication error."""
    failed = [a for a in accounts(timeline) if a.failed]
    return bool(failed) and all(a.sort == "communication" for a in failed)


def words(timeline: Timeline, rank: int) -> LastWords:
    """Return the last words of a rank; empty ones where there are none."""
    return timeline.words.get(rank, NO_WORDS)


def fault_s(fault: KernelFault) -> float | None:
    """Return when the kernel printed a fault, agent clock, seconds."""
    return None if fault.at_us is None else fault.at_us / 1e6


def counts(timeline: Timeline, fault: KernelFault, rank: int) -> bool:
    """Return whether a fault may explain a rank's end, as far as time tells.

    Window: from the start of the attempt to dsup's signal to the rank, 2 s wider at
    both ends for the kernel's clock.
    """
    at_s = fault_s(fault)
    if at_s is None:
        return True
    signalled_s = timeline.signalled.get(rank)
    early = at_s < timeline.started_s - KERNEL_CLOCK_S
    late = signalled_s is not None and at_s > signalled_s + KERNEL_CLOCK_S
    return not early and not late


def raised_before_signal(timeline: Timeline, raised: Raised) -> bool:
    """Return whether a rank told of this before dsup signalled it."""
    signalled_s = timeline.signalled.get(raised.rank)
    if signalled_s is None:
        return True
    if raised.caught_s is not None:
        return raised.caught_s < signalled_s
    return _facts(timeline, raised.rank).own


def _account(timeline: Timeline, rank: int) -> Account:
    facts = _facts(timeline, rank)
    told = _told(timeline, facts)
    how = _how(timeline, facts, told)
    sort = _sort(timeline, facts, told, how)
    from_s, until_s = _interval(timeline, facts, told)
    end, own = facts.end, facts.own
    return Account(rank, facts.pid, end, own, sort, told, how, from_s, until_s)


def _facts(timeline: Timeline, rank: int) -> _Rank:
    end = next((e for e in timeline.ends if e.rank == rank), None)
    stood = next((s for s in timeline.standing if s.rank == rank), None)
    pid = end.pid if end else stood.pid if stood else None
    own = end is not None and _ended_before_signal(
        timeline, end, finished=stood is not None and stood.state in _FINISHED
    )
    killed = None
    if end is None or end.status == -SIGKILL:
        killed = _kernel_kill(timeline, rank, pid, own=own)
    return _Rank(rank, pid, end, own or (end is not None and bool(killed)), killed)


def _ended_before_signal(timeline: Timeline, end: End, *, finished: bool) -> bool:
    signalled_s = timeline.signalled.get(end.rank)
    unprovoked = signalled_s is None or end.at_s <= signalled_s
    return unprovoked or finished or (end.dying and _began_unprovoked(timeline))


def _began_unprovoked(timeline: Timeline) -> bool:
    """Return whether a rank ended before dsup signalled any: a dying one tells then."""
    first_s = min(end.at_s for end in timeline.ends)
    return first_s <= min(timeline.signalled.values(), default=math.inf)


def _kernel_kill(
    timeline: Timeline, rank: int, pid: int | None, *, own: bool
) -> KernelFault | None:
    """Return the line that says that the kernel killed this rank, and not too late."""
    if pid is None or not timeline.host_pids:
        return None
    signalled_s = timeline.signalled.get(rank)
    for fault in timeline.kernel:
        if fault.pid == pid and fault.kind in OOM_KINDS:
            at_s = fault_s(fault)
            dated = signalled_s is None or (at_s is not None and at_s < signalled_s)
            if (own or dated) and counts(timeline, fault, rank):
                return fault
    return None


def _told(timeline: Timeline, facts: _Rank) -> Raised | None:
    """Return the uncaught exception of the main thread, by note, file or stderr.

    One that the program handed to ``sys.excepthook`` itself ended nothing by that: it
    counts only if exit code 1 follows within ``HANDED_S``, and where the rank's output
    does not end with another. Nor is a later exit 1 laid to what is known as survived.
    """
    candidates = [
        raised
        for raised in timeline.raised
        if raised.rank == facts.rank
        and not raised.thread
        and raised.pid in {None, facts.pid}
        and raised.type not in _INTERRUPTS
        and raised_before_signal(timeline, raised)
    ]
    final = [raised for raised in candidates if not raised.handed]
    if final:
        return min(final, key=lambda r: (r.source != "note", r.caught_s or 0.0))
    seen = _from_words(timeline, facts)
    handed = [r for r in candidates if seen is None or r.type == seen.type]
    soon = [raised for raised in handed if _ends_soon(facts, raised)]
    if soon:
        return soon[-1]
    survived = bool(handed) and facts.end is not None and facts.end.status == 1
    return None if survived else seen


def _ends_soon(facts: _Rank, raised: Raised) -> bool:
    """Return whether a rank ended with 1, soon after it told of an exception."""
    end, at_s = facts.end, raised.caught_s
    if end is None or not facts.own or end.status != 1 or at_s is None:
        return False
    return at_s <= end.at_s <= at_s + HANDED_S


def _from_words(timeline: Timeline, facts: _Rank) -> Raised | None:
    """Return what its output shows; a signal other than SIGABRT leaves no traceback."""
    if facts.end is None or not facts.own or facts.end.status == 0:
        return None
    if facts.end.status < 0 and facts.end.status != -SIGABRT:
        return None
    seen = shown(timeline, facts.rank)
    return seen if seen is not None and not seen.thread else None


def shown(timeline: Timeline, rank: int) -> Raised | None:
    """Return the uncaught exception that a rank's output shows; None for none."""
    last = words(timeline, rank)
    if not last.type or last.type in _INTERRUPTS:
        return None
    at, _, function = last.frame.partition(" in ")
    file, _, line = at.rpartition(":")
    number = int(line) if line.isascii() and line.isdigit() and len(line) < 9 else None  # noqa: PLR2004 (no file is longer)
    return Raised(
        rank,
        last.type,
        last.text,
        None,
        last.stream,
        thread=last.thread,
        file=file,
        line=number,
        function=function,
        causes=last.causes,
    )


def _how(timeline: Timeline, facts: _Rank, told: Raised | None) -> str:
    if timeline.world_size == 1:
        return ""
    if told is not None:
        return _how_of_chain(told)
    last = words(timeline, facts.rank)
    if facts.end is None or not facts.own or facts.end.status == 0:
        return ""
    said = (last.line,) if facts.end.status > 0 else (last.crash, *last.lines)
    return next((how for how in (communication("", text) for text in said) if how), "")


def _how_of_chain(told: Raised) -> str:
    """Return the kind of communication error an exception is, or was raised from.

    Python's own types count only outermost: a library's broken connection to whatever
    service has them inside.
    """
    inner = [link for link in told.causes if link[0] not in PEER_TYPES]
    kinds = (communication(*link) for link in ((told.type, told.text), *inner))
    return next((how for how in kinds if how), "")


def _sort(timeline: Timeline, facts: _Rank, told: Raised | None, how: str) -> Sort:
    if told is not None:
        return "communication" if how else "exception"
    if facts.killed is not None:
        return "signal"
    if facts.end is None or not facts.own:
        return "none"
    status = facts.end.status
    if status < 0 and status != -SIGABRT:
        return "signal"
    if status == 0:
        return "clean"
    if how:
        return "communication"
    return "abort" if status < 0 and _says_why(timeline, facts.rank) else "exit"


def _says_why(timeline: Timeline, rank: int) -> bool:
    """Return whether a rank that aborted told of a reason of its own."""
    last = words(timeline, rank)
    said = " ".join((last.crash, *last.lines, last.line))
    return bool(said.strip()) and CAST_OFF not in said


def _interval(
    timeline: Timeline, facts: _Rank, told: Raised | None
) -> tuple[float, float]:
    """Return when a rank began to end: at the earliest, and at the latest."""
    end = facts.end
    until_s = end.at_s if end else timeline.signalled.get(facts.rank, math.inf)
    caught_s = told.caught_s if told else None
    if caught_s is not None and timeline.started_s <= caught_s <= until_s:
        return caught_s, caught_s
    from_s = until_s - end.late_s if end else until_s
    if facts.killed is not None:
        from_s = min(from_s, fault_s(facts.killed) or from_s)
    if end is not None and -end.status in DECISIVE_SIGNALS and end.status != -SIGKILL:
        from_s -= CRASH_S
    if end is not None and end.dying:
        first_s = min(other.at_s for other in timeline.ends)
        begun = (e.at_s - e.late_s for e in timeline.ends if e.at_s == first_s)
        from_s = min(from_s, *begun)
    return from_s, until_s
