"""When things happened in a run, as its journal tells. Pure.

``report.account`` says what happened; the page also needs to know when. A journal is
read as it is found: what cannot be read of it is passed over, and a time that no
clock shows counts as none.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from dsup.core import commands as cmd
from dsup.core import events as ev
from dsup.core import journal
from dsup.core.errors import JournalError
from dsup.core.exits import SIGKILL

_TIME_MAX_S: Final = 1e10
"""Far beyond any uptime."""

_SIGNALS_MAX: Final = 256
_DOUBTS_MAX: Final = 64


class Stepped(NamedTuple):
    """When an attempt made a new step."""

    at_s: float
    step: int


class Sent(NamedTuple):
    """A signal to ranks."""

    at_s: float
    signum: int
    ranks: tuple[int, ...]


class Seemed(NamedTuple):
    """Ranks that seemed to hang.

    Attributes:
        until_s: when they went on; None if they did not.
    """

    at_s: float
    ranks: tuple[int, ...]
    until_s: float | None = None


class Moments:
    """When things happened in one attempt, agent clock, seconds; None if unknown.

    Attributes:
        began_s: when it was ordered.
        started: when each rank's process existed.
        ended: when each rank was gone, and its status.
        places: the line of the journal that tells of each rank's end.
        pids: of each rank.
        sent: signals of dsup's.
        seemed: when ranks seemed to hang; the last look at who it was counts.
        slow: of ranks that were slower than their peers for some time, by how much at
            most, and why; empty if unknown.
        first: the first new step.
        last: the last new step.
        over_s: when nothing of it was left.
        resume_from: path of the checkpoint that it was to resume from.
        found: step of the newest checkpoint when it was over.
        found_path: that checkpoint's path.
        heard_s: when anything was last heard of it.
    """

    def __init__(self) -> None:
        self.began_s: float | None = None
        self.started: dict[int, float] = {}
        self.ended: dict[int, tuple[float, int]] = {}
        self.places: dict[int, int] = {}
        self.pids: dict[int, int] = {}
        self.sent: list[Sent] = []
        self.seemed: list[Seemed] = []
        self.slow: dict[int, tuple[float, str]] = {}
        self.first: Stepped | None = None
        self.last: Stepped | None = None
        self.over_s: float | None = None
        self.resume_from = ""
        self.found: int | None = None
        self.found_path = ""
        self.heard_s: float | None = None


def moments(lines: Iterable[str]) -> dict[int, Moments]:
    """Return when things happened, by attempt.

    Args:
        lines: a journal, its header first.
    """
    reader = _Reader()
    for line in lines:
        reader.read(line)
    return reader.attempts


class _Reader:
    """Folds the lines of a journal; orders are as old as the event before them."""

    def __init__(self) -> None:
        self.attempts: dict[int, Moments] = {}
        self._now_s: float | None = None
        self._best: int | None = None

    def read(self, line: str) -> None:
        """Take one line in."""
        often = journal.often(line)
        if often is not None:
            self._on_often(often)
            return
        try:
            entry = journal.decode(line)
        except JournalError:
            return
        if entry.event is not None:
            self._on_event(entry.event)
            if isinstance(entry.event, ev.RankExited):
                # Lines are counted from 1, entries from 0.
                self._at(entry.event.attempt).places[entry.event.rank] = entry.n + 1
        elif entry.command is not None:
            self._on_command(entry.command)

    def _at(self, number: int) -> Moments:
        found = self.attempts.setdefault(number, Moments())
        found.heard_s = self._now_s
        return found

    def _on_often(self, event: ev.Tick | ev.Progressed) -> None:
        if isinstance(event, ev.Progressed):
            self._on_step(event.at_s, event.attempt, event.step)
        elif abs(event.at_s) < _TIME_MAX_S:
            self._now_s = event.at_s

    def _on_step(self, at_s: float, number: int, step: int) -> None:
        if not abs(at_s) < _TIME_MAX_S:
            return
        self._now_s = at_s
        self._reach(number, Stepped(at_s, step))

    def _reach(self, number: int, new: Stepped) -> None:
        """Take in a step, if no earlier one of the run was as far."""
        attempt = self._at(number)
        if self._best is None or new.step > self._best:
            self._best, attempt.last = new.step, new
            attempt.first = attempt.first or new

    def _on_command(self, command: cmd.Command) -> None:
        if self._now_s is None:
            return
        match command:
            case cmd.Prepare():
                self._at(command.attempt).began_s = self._now_s
            case cmd.SignalRanks():
                sent = Sent(self._now_s, command.signum, command.ranks)
                self._send(command.attempt, sent)
            case cmd.KillAll():
                attempt = self._at(command.attempt)
                left = sorted(attempt.started.keys() - attempt.ended.keys())
                self._send(command.attempt, Sent(self._now_s, SIGKILL, tuple(left)))
            case _:
                return

    def _send(self, number: int, sent: Sent) -> None:
        attempt = self._at(number)
        if sent.ranks and len(attempt.sent) < _SIGNALS_MAX:
            attempt.sent.append(sent)

    def _on_hang(self, event: ev.Event) -> None:
        """Keep since when ranks were suspected, and who it turned out to be."""
        match event:
            case ev.HangSuspected() | ev.HangConfirmed():
                self._seem(event.attempt, Seemed(event.at_s, event.ranks))
            case ev.Captured() if self._doubted(event.attempt) and event.ranks:
                self._seem(event.attempt, Seemed(event.at_s, event.ranks))
            case ev.Straggles() if event.times:
                slow = self._at(event.attempt).slow
                slow[event.rank] = max(
                    (event.times, event.why), slow.get(event.rank, (0, ""))
                )
            case ev.HangCleared():
                if self._doubted(event.attempt):
                    seemed = self._at(event.attempt).seemed
                    seemed[-1] = seemed[-1]._replace(until_s=event.at_s)
            case _:
                return

    def _doubted(self, number: int) -> bool:
        seemed = self._at(number).seemed
        return bool(seemed) and seemed[-1].until_s is None

    def _seem(self, number: int, news: Seemed) -> None:
        seemed = self._at(number).seemed
        if self._doubted(number):
            ranks = news.ranks or seemed[-1].ranks
            seemed[-1] = seemed[-1]._replace(ranks=ranks)
        elif len(seemed) < _DOUBTS_MAX:
            seemed.append(news)

    def _on_event(self, event: ev.Event) -> None:  # noqa: C901 (one case an event)
        if not abs(event.at_s) < _TIME_MAX_S:
            return
        self._now_s = at_s = event.at_s
        match event:
            case ev.RankStarted():
                attempt = self._at(event.attempt)
                attempt.started[event.rank] = at_s
                attempt.pids[event.rank] = event.pid
            case ev.RankExited():
                self._at(event.attempt).ended[event.rank] = (at_s, event.status)
            case ev.GroupEmpty():
                self._at(event.attempt).over_s = at_s
            case ev.Prepared():
                self._at(event.attempt).resume_from = event.resume_from
            case ev.Progressed():
                self._on_step(at_s, event.attempt, event.step)
            case ev.Stepped():
                made_s = min(event.made_s, at_s)
                self._reach(event.attempt, Stepped(made_s, event.step))
            case ev.Scanned() if event.step is not None:
                attempt = self._at(event.attempt)
                attempt.found, attempt.found_path = event.step, event.path
            case _:
                self._on_hang(event)
