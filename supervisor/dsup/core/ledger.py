"""The ledger: where the time of a run went, as its journal tells. Pure.

What happened and was ordered is folded in, in the journal's order: by the agent while
the run goes on, and from ``events.jsonl`` afterwards. Both come to the same. All times
are the agent's clock, seconds, so that a suspended node costs nothing.

The time of a run, from ``Launched`` to ``Exit``, is divided without a rest:

    start_up    from the order to prepare an attempt to the end of its first step; all
                of an attempt that came to no step
    productive  from there to the attempt's end: its first failed rank (``at_s`` less
                ``late_s``), what was in its way, its last rank's exit with 0, or a wish
                to stop; but the last sign of life of ranks that seem to hang, if nobody
                has gone on since; without what ``recomputed`` takes
    recomputed  of that: the steps past the one from which a later attempt went on, and
                the step that was not finished
    detection   from that end to when the agent saw it; while ranks seem to hang, to the
                present: what turns out to be no hang becomes productive again
    teardown    from there to when nothing of the attempt was left, listening to the
                other ranks, stacks and grace included; of a run that is given up, to
                its end
    pause       from there to the order to prepare the next attempt
    stopping    from the wish to stop, or the last rank's exit with 0, to the end

What is approximated. A first step is seen within a second, and dated by the ranks: of
steps shorter than that, those before the one seen count as start-up. A recomputed step
is worth what a step of its own attempt took on average, evaluations and checkpoints
included. A later attempt went on from the checkpoint that dsup had it resume from;
where dsup knows none, from the step before the first one it told of. Where no attempt
follows, nothing is recomputed: what tomorrow's launch does again is not this run's
loss. A rank's death is as old as its wait status: of one that the kernel took seconds
to take down, those seconds count as productive. A run whose agent was killed counts up
to the last event on record.

Without the runtime no rank tells its steps. Then start-up ends when all ranks run, all
the time that they were alive is ``productive``, nothing is ``recomputed``, and there is
no ETTR: how much of that time was of use, nobody knows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Literal, NamedTuple, TypeAlias

from dsup.core import commands as cmd
from dsup.core import events as ev

Item: TypeAlias = ev.Event | cmd.Command
Account: TypeAlias = Literal["work", "teardown", "pause", "stopping", "over"]

LOST: Final = ("start_up", "detection", "teardown", "pause", "recomputed", "stopping")
"""The names of what is lost."""

_TIME_MAX_S: Final = 1e10
"""Far beyond any uptime."""

_FAILING: Final = frozenset({"peer", "error"})


class Mark(NamedTuple):
    """A step, and when every rank had finished it."""

    step: int
    at_s: float


class Work(NamedTuple):
    """What one attempt did.

    Attributes:
        began_s: when it was ordered.
        ran_s: when the last of its ranks was started; None for none.
        first: the first step on record.
        last: the last step on record.
        until_s: when it was of no more use; None while it goes on.
        resumed: step of the checkpoint that it was to resume from; None if unknown.
        doubt_s: since when it seems to hang; None for not at all, or not any more.
        started: how many ranks were.
        done: how many of them ended with 0.
    """

    began_s: float
    ran_s: float | None = None
    first: Mark | None = None
    last: Mark | None = None
    until_s: float | None = None
    resumed: int | None = None
    doubt_s: float | None = None
    started: int = 0
    done: int = 0


class Ledger(NamedTuple):
    """Everything that is remembered.

    Attributes:
        began_s: when the run was launched; None before that.
        now_s: the last event's time.
        account: what the time goes to now.
        since_s: since when.
        spent: seconds of what is over, but for ``work``.
        works: of each attempt.
        found: step and path of the newest checkpoint known.
        heard: the last event.
    """

    began_s: float | None = None
    now_s: float = 0.0
    account: Account = "work"
    since_s: float = 0.0
    spent: Mapping[str, float] = {}
    works: tuple[Work, ...] = ()
    found: tuple[int, str] | None = None
    heard: ev.Event | None = None


class Balance(NamedTuple):
    """Where the time went; ``productive_s`` and all that is lost make ``wall_s``.

    Attributes:
        lost_s: seconds by the names in ``LOST``.
        by_steps: ranks told their steps; else ``productive_s`` is how long ranks were
            alive.
        attempts: how many there were.
    """

    wall_s: float
    productive_s: float
    lost_s: Mapping[str, float]
    by_steps: bool
    attempts: int

    @property
    def ettr(self) -> float | None:
        """The share of the time that was productive; None where nobody can tell."""
        told = self.by_steps and self.wall_s > 0
        return self.productive_s / self.wall_s if told else None


def entered(ledger: Ledger, items: Iterable[Item]) -> Ledger:
    """Return the ledger with what happened and was ordered, in the journal's order."""
    for item in items:
        if isinstance(item, ev.Event):
            ledger = happened(ledger, item)
        else:
            ledger = ordered(ledger, item)
    return ledger


def happened(ledger: Ledger, event: ev.Event) -> Ledger:
    """Return the ledger that knows of an event; one at no possible time is ignored."""
    if not 0.0 <= event.at_s < _TIME_MAX_S:
        return ledger
    heard = ledger._replace(now_s=max(ledger.now_s, event.at_s), heard=event)
    if isinstance(event, ev.Launched):
        new = ledger.began_s is None
        return (
            heard._replace(began_s=heard.now_s, since_s=heard.now_s) if new else heard
        )
    return _told(heard, event) if heard.works else heard


def ordered(ledger: Ledger, order: cmd.Command) -> Ledger:
    """Return the ledger that knows of an order; it is as old as the last event."""
    at_s, working = ledger.now_s, ledger.account == "work"
    match order:
        case cmd.Prepare():
            begun = _turned(ledger, "work", at_s)
            return begun._replace(works=(*begun.works, Work(at_s)))
        case cmd.Capture(final=True) if working:
            return _turned(ledger, "teardown", at_s)
        case cmd.FreezePage() | cmd.SignalRanks() | cmd.KillAll() if working:
            return ledger if _fails(ledger) else _turned(ledger, "stopping", at_s)
        case cmd.Scan():
            return _turned(ledger, "pause", at_s)
        case cmd.Exit():
            # A pause that no attempt follows is the end of the last one.
            paused = ledger.account == "pause"
            given_up = ledger._replace(account="teardown") if paused else ledger
            return _turned(given_up, "over", at_s)
        case _:
            return ledger


def balance(ledger: Ledger, now_s: float | None = None) -> Balance | None:
    """Return where the time of a run went, so far; None before it was launched.

    Args:
        ledger: with all that happened.
        now_s: the present, where the run goes on; else its last event is the end.
    """
    if ledger.began_s is None:
        return None
    end_s = ledger.now_s
    if now_s is not None and ledger.account != "over":
        end_s = max(end_s, now_s)
    lost_s = {**dict.fromkeys(LOST, 0.0), **ledger.spent}
    if ledger.account in lost_s:
        lost_s[ledger.account] += end_s - ledger.since_s
    by_steps = any(work.first for work in ledger.works)
    productive_s, resumed = 0.0, None
    for work in reversed(ledger.works):
        until_s = _until_s(work, end_s)
        share = _divided(work, until_s, resumed, by_steps=by_steps)
        productive_s += share.useful_s
        lost_s["detection"] += end_s - until_s if work.until_s is None else 0.0
        lost_s["start_up"] += share.start_s
        lost_s["recomputed"] += share.again_s
        resumed = _lower(resumed, _from(work))
    wall_s = end_s - ledger.began_s
    return Balance(wall_s, productive_s, lost_s, by_steps, len(ledger.works))


def _told(ledger: Ledger, event: ev.Event) -> Ledger:  # noqa: C901 (one case an event)
    """Return the ledger that knows what happened to the last attempt."""
    work, working = ledger.works[-1], ledger.account == "work"
    match event:
        case ev.Prepared() if ledger.found and event.resume_from == ledger.found[1]:
            return _last(ledger, work._replace(resumed=ledger.found[0]))
        case ev.RankStarted():
            started = work._replace(ran_s=ledger.now_s, started=work.started + 1)
            return _last(ledger, started)
        case ev.Stepped():
            mark = Mark(event.step, min(event.made_s, ledger.now_s))
            return _last(ledger, work._replace(first=work.first or mark, last=mark))
        case ev.HangSuspected():
            since_s = min(event.since_s, work.doubt_s or event.since_s)
            return _last(ledger, work._replace(doubt_s=since_s))
        case ev.HangCleared():
            return _last(ledger, work._replace(doubt_s=None))
        case ev.Scanned():
            found = None if event.step is None else (event.step, event.path)
            return ledger._replace(found=found)
        case ev.RankExited() if working:
            return _ended(ledger, work, event)
        case ev.Cannot() if working:
            return _turned(ledger, "teardown", ledger.now_s)
        case _:
            return ledger


def _last(ledger: Ledger, work: Work) -> Ledger:
    return ledger._replace(works=(*ledger.works[:-1], work))


def _ended(ledger: Ledger, work: Work, event: ev.RankExited) -> Ledger:
    if event.status:
        return _turned(ledger, "teardown", ledger.now_s - event.late_s)
    everyone = work.done + 1 == work.started
    doubt_s = None if everyone else work.doubt_s
    ledger = _last(ledger, work._replace(done=work.done + 1, doubt_s=doubt_s))
    return _turned(ledger, "stopping", ledger.now_s) if everyone else ledger


def _fails(ledger: Ledger) -> bool:
    """Return whether ranks stop because one of them has failed."""
    wish = ledger.heard
    return isinstance(wish, ev.StopWanted) and wish.stop in _FAILING


def _turned(ledger: Ledger, account: Account, until_s: float) -> Ledger:
    """Return the ledger whose time goes to something else from now on.

    Args:
        ledger: as it was.
        account: what it goes to.
        until_s: when an attempt at work came to its end, which was seen now; a hang
            has ended it before.
    """
    now_s, spent = ledger.now_s, dict(ledger.spent)
    if ledger.account == "work" and ledger.works:
        work = ledger.works[-1]
        end_s = _until_s(work, min(until_s, now_s))
        ledger = _last(ledger, work._replace(until_s=end_s))
        spent["detection"] = spent.get("detection", 0.0) + now_s - end_s
    elif ledger.account in LOST:
        before_s = spent.get(ledger.account, 0.0)
        spent[ledger.account] = before_s + now_s - ledger.since_s
    return ledger._replace(account=account, since_s=now_s, spent=spent)


class _Share(NamedTuple):
    useful_s: float
    start_s: float
    again_s: float


def _until_s(work: Work, now_s: float) -> float:
    """Return when an attempt was of no more use: at the latest now."""
    if work.until_s is not None:
        return work.until_s
    end_s = now_s if work.doubt_s is None else min(work.doubt_s, now_s)
    return max(end_s, work.began_s)


def _divided(
    work: Work, end_s: float, resumed: int | None, *, by_steps: bool
) -> _Share:
    """Return what the time of an attempt was worth.

    Args:
        work: the attempt.
        end_s: when it was of no more use.
        resumed: the step from which later attempts went on; None if unknown.
        by_steps: ranks tell their steps.
    """
    if by_steps:
        ready_s = work.first.at_s if work.first else end_s
    else:
        ready_s = end_s if work.ran_s is None else work.ran_s
    ready_s = min(max(ready_s, work.began_s), end_s)
    again_s = _again_s(work, ready_s, end_s, resumed) if by_steps else 0.0
    return _Share(end_s - ready_s - again_s, ready_s - work.began_s, again_s)


def _again_s(work: Work, ready_s: float, end_s: float, resumed: int | None) -> float:
    """Return what of an attempt's work after its first step had to be done again."""
    if resumed is None or work.first is None or work.last is None:
        return 0.0
    if resumed < work.first.step:
        return end_s - ready_s
    last_s = min(max(work.last.at_s, ready_s), end_s)
    made, again = work.last.step - work.first.step, work.last.step - resumed
    steps_s = (last_s - ready_s) * again / made if again > 0 < made else 0.0
    return steps_s + end_s - last_s


def _from(work: Work) -> int | None:
    """Return the step that an attempt went on from; None if unknown."""
    if work.resumed is not None:
        return work.resumed
    return work.first.step - 1 if work.first else None


def _lower(one: int | None, other: int | None) -> int | None:
    known = [step for step in (one, other) if step is not None]
    return min(known, default=None)
