"""What a journal tells of a run that may have ended in any way. Pure.

A journal is read as it is found: its last line may be cut, some may be garbage, and
the agent may have been killed between any two of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple, TypeAlias

from dsup.core import commands as cmd
from dsup.core import events as ev
from dsup.core import journal
from dsup.core.errors import JournalError
from dsup.core.exits import SIGTERM, signal_name, stop_code
from dsup.core.state import Hang
from dsup.core.stopping import stops_run
from dsup.report.life import Life, new_life, take_end, take_word
from dsup.report.sentences import clock
from dsup.report.stops import asker

State: TypeAlias = Literal["running", "finished", "failed", "stopped", "gone"]
"""``gone`` is a run whose agent or guard was killed."""


class Account(NamedTuple):
    """A run.

    Attributes:
        lives: of each attempt, from 0.
        stops: what stopped the run or may have, in order: exit code, and in words.
        guard_lost_s: when the guard was killed, agent clock, seconds; None if it was
            not.
        end: the agent's last command; None where it never came to that.
        last: the last event; None for none.
        world_size: how many ranks it has; 0 where nothing tells.
        unread: how many lines say nothing.
    """

    lives: dict[int, Life]
    stops: list[tuple[int, str]]
    guard_lost_s: float | None
    end: cmd.Exit | None
    last: ev.Event | None
    world_size: int
    unread: int

    @property
    def attempt(self) -> int:
        """The last attempt."""
        return max(self.lives, default=0)

    @property
    def guard_lost(self) -> bool:
        """Whether the guard was killed."""
        return self.guard_lost_s is not None

    @property
    def gone(self) -> bool:
        """Whether guard or agent were killed, if nobody holds the journal."""
        return self.end is None or self.guard_lost


def account(lines: Iterable[str]) -> Account:
    """Return what a journal tells.

    Raises:
        JournalError: not one of its lines can be read.
    """
    told = _Reader()
    for line in filter(None, lines):
        told.read(line)
    told.finish()
    return Account(
        lives=told.lives,
        stops=told.stops,
        guard_lost_s=told.guard_lost_s,
        end=told.end,
        last=told.last,
        world_size=told.world_size,
        unread=told.unread,
    )


def failed(told: Account, kept: Iterable[int]) -> list[int]:
    """Return which attempts failed, in order.

    Args:
        told: what the journal tells.
        kept: attempts that have a verdict.
    """
    found = {number for number, life in told.lives.items() if life.plan or life.cannot}
    end = told.end
    if end is not None and end.code != 0 and not told.gone and stopped_by(told) is None:
        found.add(told.attempt)
    return sorted(found | set(kept))


def stopped_by(told: Account) -> str | None:
    """Return what stopped a run, in words; None where nothing did."""
    last = told.lives.get(told.attempt)
    given_up = last and last.plan and last.plan.restart_at_s is None
    if told.end is None or given_up:
        return None
    code = told.end.code
    return next((words for by, words in told.stops if by == code), None)


def outcome(told: Account, alive: bool | None) -> str:
    """Return what became of a run.

    Args:
        told: what the journal tells.
        alive: somebody writes it; None where nobody can tell.
    """
    number = told.attempt
    if told.end is None and alive:
        return f"the run goes on, in attempt {number}"
    if told.guard_lost:
        return "the guard was killed, and the agent ended every rank"
    if told.end is None:
        unsure = "" if alive is False else ", if it does not still run elsewhere"
        return f"the agent was killed in attempt {number}{unsure}"
    code = told.end.code
    if code == 0:
        again = f" in attempt {number}" if number else ""
        return f"the run finished{again}: every rank ended with 0"
    stopped = stopped_by(told)
    if stopped is not None:
        return f"the run was stopped by {stopped}, exit code {code}"
    plan = told.lives[number].plan if number in told.lives else None
    why = f": {plan.reason}" if plan and plan.restart_at_s is None else ""
    return f"the run was given up with exit code {code}{why}"


def state(told: Account, alive: bool | None) -> State:
    """Return what became of a run, in one word; arguments are as for ``outcome``."""
    if told.end is None and alive:
        return "running"
    if told.gone:
        return "gone"
    if told.end is not None and told.end.code == 0:
        return "finished"
    return "failed" if stopped_by(told) is None else "stopped"


def sequel(told: Account, number: int, offset_s: float, alive: bool | None) -> str:
    """Return what followed a failed attempt, for its panel's ``next``.

    Args:
        told: what the journal tells.
        number: the attempt.
        offset_s: CLOCK_REALTIME minus the agent's clock, seconds.
        alive: as for ``outcome``.
    """
    life = told.lives.get(number)
    if life is None or life.plan is None or life.plan.restart_at_s is None:
        return outcome(told, alive)
    following, why = f"attempt {number + 1}", life.plan.reason
    started_s = told.lives.get(number + 1, new_life()).started_s
    if started_s is not None:
        at, paused = clock(started_s, offset_s), _paused(life, started_s)
        return f"{following} was started at {at} UTC{paused}: {why}"
    if told.end is None and alive and number + 1 >= told.attempt:
        at = clock(life.plan.restart_at_s, offset_s)
        return f"{following} is to start at {at} UTC: {why}"
    if number < told.attempt:
        return f"{following} came to no rank: {why}"
    return outcome(told, alive)


def _paused(life: Life, until_s: float) -> str:
    """Return how long nobody was there after an attempt; empty where nothing tells."""
    if life.over_s is None:
        return ""
    return f", after a pause of {max(0.0, until_s - life.over_s):.1f} s"


class _Reader:
    """Folds the lines of a journal."""

    def __init__(self) -> None:
        self.lives: dict[int, Life] = {}
        self.stops: list[tuple[int, str]] = []
        self._limit_s: float | None = None
        self.guard_lost_s: float | None = None
        self.end: cmd.Exit | None = None
        self.last: ev.Event | None = None
        self.world_size = 0
        self.unread = 0
        self._why: JournalError | None = None
        self._known = 0

    def read(self, line: str) -> None:
        """Take one line in."""
        often = journal.often(line)
        if often is not None:
            self._known += 1
            self.last = often
            if self._limit_s is not None and isinstance(often, ev.Tick):
                self._on_stop(often)
            return
        try:
            if not self._known and not self.unread:
                spec = journal.decode_header(line)
                self.world_size, self._limit_s = spec.world_size, spec.stop_after_s
            else:
                self._take(journal.decode(line))
            self._known += 1
        except JournalError as error:
            self.unread += 1
            self._why = self._why or error

    def finish(self) -> None:
        """Refuse a journal that tells nothing.

        Raises:
            JournalError: no line could be read.
        """
        if not self._known:
            raise self._why or JournalError(
                "cannot read the journal, because it is empty"
            )

    def _take(self, entry: journal.Entry) -> None:
        if entry.command is not None:
            self._on_command(entry.command)
        if entry.event is not None:
            self.last = entry.event
            self._on_event(entry.event)

    def _on_command(self, command: cmd.Command) -> None:
        match command:
            case cmd.Exit():
                self.end = command
            case cmd.Prepare():
                self._life(command.attempt)
            case cmd.Capture(final=True) if isinstance(self.last, ev.HangConfirmed):
                hang = Hang(self.last.ranks, self.last.why, self.last.at_s)
                number = command.attempt
                self.lives[number] = self._life(number)._replace(hang=hang)
            case cmd.SignalRanks():
                self._life(command.attempt).asked.update(command.ranks)
            case cmd.PublishStop() if stops_run(command.stop, command.rank):
                number = command.attempt
                self.lives[number] = self._life(number)._replace(leaving=True)
            case cmd.KillAll():
                life = self._life(command.attempt)
                life.asked.update(life.pids)
            case _:
                return

    def _on_event(self, event: ev.Event) -> None:
        match event:
            case ev.RankStarted():
                life = self._life(event.attempt)
                life.pids[event.rank] = event.pid
                if life.started_s is None:
                    started = life._replace(started_s=event.at_s)
                    self.lives[event.attempt] = started
            case ev.GroupEmpty():
                number = event.attempt
                over = self._life(number)._replace(over_s=event.at_s)
                self.lives[number] = over
            case ev.RankExited():
                take_end(self._life(event.attempt), event)
            case ev.Cannot() | ev.Judged() | ev.PlanAgreed() | ev.Captured():
                number = event.attempt
                self.lives[number] = take_word(self._life(number), event)
            case ev.HangCleared():
                number = event.attempt
                self.lives[number] = self._life(number)._replace(hang=None)
            case ev.GuardLost():
                self.guard_lost_s = event.at_s
            case _:
                self._on_stop(event)

    def _on_stop(self, event: ev.Event) -> None:
        """Note what may have stopped the run; its exit code tells whether it has."""
        match event:
            case ev.Signalled():
                asked = event.sender_uid is not None
                who = asker(event) if asked else signal_name(event.signum)
                self.stops.append((stop_code(event.signum), who))
            case ev.StopWanted() if event.stop in {"preempt", "limit"}:
                why = event.reason or event.stop
                self.stops.append((stop_code(SIGTERM), f"rank {event.rank} ({why})"))
            case ev.Launched() if self._limit_s is not None:
                self._limit_s += event.at_s
            case ev.Tick() if self._limit_s is not None:
                if event.at_s >= self._limit_s:
                    self.stops.append((stop_code(SIGTERM), "its time limit"))
                    self._limit_s = None  # told once
            case _:
                return

    def _life(self, number: int) -> Life:
        return self.lives.setdefault(number, new_life())
