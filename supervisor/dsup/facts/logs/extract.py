"""The facts of one attempt, from its lines: read once, in bounded memory."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final, TypeVar

from dsup.facts.errors import communication
from dsup.facts.logs.collectives import Collectives
from dsup.facts.logs.complaints import Complaints, kind_of
from dsup.facts.logs.endings import Endings
from dsup.facts.logs.exceptions import Exceptions
from dsup.facts.logs.hints import Hints
from dsup.facts.logs.line import LogLine
from dsup.facts.logs.mapping import Mapping
from dsup.facts.logs.own_words import OwnWords
from dsup.facts.logs.progress import NOBODY, Progresses
from dsup.facts.logs.prose import is_prose
from dsup.facts.logs.said import (
    Collective,
    Complaint,
    End,
    Error,
    LoggedAttempt,
    Progress,
)
from dsup.facts.logs.stops import Stops

_DIGITS: Final = re.compile(r"\d{1,300}")
_PLAIN_MAX: Final = 10_000
_LONG: Final = 300
_NUMBERED: Final = (
    *("err", "fail", "exit", "signal", "kill", "code", "status", "rank", "world"),
    *("proc", "node", "machine", "sav", "mpi", "horovod", "member", "nccl"),
)
"""Words of lines whose numbers count: equal ones but for these may tell something."""

_WARNED: Final = ("userwarning: ", "futurewarning: ", "deprecationwarning: ")
"""A library's advice, printed once and again: its numbers tell nothing."""

_TROUBLE: Final = (
    *("error", "fail", "abort", "kill", "lost", "crash", "terminat", "fatal"),
    *("timed out", "timeout", "exception", "traceback", "cancel"),
)
_CLOCK_MAX: Final = 100_000
_CLOCK_STEP_S: Final = 1.0
_CLOCK_LINES: Final = 32

Fact = TypeVar("Fact", Collective, Complaint, End, Error)


def attempt(lines: Iterable[LogLine], number: int) -> LoggedAttempt:
    """Return what the lines of one attempt tell.

    Time is linear in the lines, and memory bounded: of each kind of fact the first and
    the last are kept.

    Args:
        lines: of this attempt, clean, in order.
        number: of the attempt, from 0.
    """
    reader = _Reader()
    for line in lines:
        reader.feed(line)
    return reader.finish(number)


class _Reader:
    """Hands every line to those who look for something."""

    def __init__(self) -> None:
        self._exceptions = Exceptions()
        self._endings = Endings()
        self._collectives = Collectives()
        self._complaints = Complaints()
        self._stops = Stops()
        self._progress = Progresses()
        self._mapping = Mapping()
        self._hints = Hints()
        self._own_words = OwnWords()
        self._troubled = False
        self._clock: list[tuple[int, float]] = []
        self._files: set[str] = set()
        self._plain: set[str] = set()
        self._shapes: set[str] = set()
        self._first: int | None = None
        self._last = 0

    def feed(self, line: LogLine) -> None:
        """Take in a line."""
        if self._first is None:
            self._first = line.order
        self._last = line.order
        self._tell_time(line)
        shape = _DIGITS.sub("0", line.text[:300])
        plain = shape in self._plain and not self._own_words.open
        if plain and len(line.text) < _LONG:
            self._mapping.hear(line.place)
            traced, told = self._exceptions.feed(line), self._endings.goes_on(line)
            if not traced and not told:
                self._progress.feed(line)
            return
        fresh = shape not in self._shapes or len(line.text) >= _LONG
        if fresh and len(self._shapes) < _PLAIN_MAX:
            self._shapes.add(shape)
        if self._read(line, fresh=fresh) and len(self._plain) < _PLAIN_MAX:
            self._plain.add(shape)

    def _tell_time(self, line: LogLine) -> None:
        if line.file not in self._files:
            self._files.add(line.file)
            self._mapping.see(line.file)
        at_s, known = line.at_s, self._clock
        if at_s is None or len(known) >= _CLOCK_MAX:
            return
        order, last_s = known[-1] if known else (-_CLOCK_LINES, at_s)
        if line.order - order >= _CLOCK_LINES or abs(at_s - last_s) >= _CLOCK_STEP_S:
            known.append((line.order, at_s))

    def _read(self, line: LogLine, *, fresh: bool) -> bool:
        """Take in a line; return whether lines of its shape tell nothing ever.

        Args:
            line: the next one.
            fresh: none of its shape was read before.
        """
        if self._own_words.feed(line):
            self._mapping.feed(line)
            return False
        self._mapping.feed(line, fresh=fresh)
        self._hints.feed(line)
        traced = self._exceptions.feed(line)
        if not traced and is_prose(line.text):
            self._progress.feed(line)
            return False
        told = self._endings.feed(line)
        telling = self._stops.feed(line)
        telling = self._collectives.feed(line) or telling
        if not telling:
            telling = self._complaints.feed(line, traced=traced)
        if telling or traced or told:
            self._troubled = True
            return False
        self._progress.feed(line)
        lowered = line.text.lower()
        self._troubled = self._troubled or any(word in lowered for word in _TROUBLE)
        if len(lowered) >= _LONG:
            return False
        warned = any(word in lowered for word in _WARNED)
        return warned or not any(word in lowered for word in _NUMBERED)

    def finish(self, number: int) -> LoggedAttempt:
        """Return what was told."""
        self._exceptions.finish()
        self._endings.finish()
        self._own_words.finish()
        ends = self._endings.ends.all()
        self._mapping.note(ends)
        self._mapping.finish()
        errors = (*self._exceptions.workers.all(), *self._own())
        errors = self._hints.placed(self._mapping.locate, errors)
        found = LoggedAttempt(
            number,
            self._mapping.launcher,
            self._mapping.world or self._own_words.world,
            self._mapping.local_world,
            tuple(sorted(errors, key=_order)),
            tuple(sorted(self._located(ends), key=_order)),
            tuple(self._located(self._collectives.all(), errors)),
            tuple(
                sorted(self._located(self._complaints.said.all(), errors), key=_order)
            ),
            self._stops.stops.all(),
            self._progresses(),
            last_lines=self._progress.last_lines,
            first_line=self._first or 0,
            last_line=self._last,
            panels=self._own_words.panels.all(),
            directory=self._own_words.directory,
            troubled=self._troubled,
            clock=tuple(self._clock) if len(self._files) == 1 else (),
        )
        return found._replace(ranks=self._ranks(found))

    def _located(
        self, facts: Iterable[Fact], errors: Iterable[Error] = ()
    ) -> Iterator[Fact]:
        """Yield facts with their ranks; of one line's error and fact that is one."""
        known = {error.order: error.place for error in errors}
        for fact in facts:
            place = self._mapping.locate(fact.place)
            if place.rank is None:
                place = known.get(fact.order, place)
            yield fact._replace(place=place)

    def _own(self) -> Iterator[Error]:
        """Return the launchers' own errors; those of their stores are complaints."""
        for error in self._exceptions.launchers.all():
            kind = kind_of(f"{error.type}: {error.text}")
            lost = communication(error.type, error.text)
            if kind in {"port", "store"} or lost:
                line = LogLine(
                    f"{error.type}: {error.text}".replace("\n", " "),
                    error.place,
                    error.file,
                    error.number,
                    error.order,
                    error.at_s,
                )
                self._complaints.add(line, "port" if kind == "port" else "store")
            elif error.type:
                yield error

    def _progresses(self) -> dict[int, Progress]:
        found = dict(self._progress.ranks)
        for (node, local), told in self._progress.locals.items():
            place = self._mapping.locate(Mapping.place_of(node, local))
            rank = NOBODY if place.rank is None else place.rank
            before = found.get(rank)
            if before is None or before.order < told.order:
                found[rank] = told
        return found

    def _ranks(self, found: LoggedAttempt) -> frozenset[int]:
        places = {fact.place for fact in found.errors}
        places.update(fact.place for fact in found.ends)
        places.update(fact.place for fact in found.collectives)
        places.update(fact.place for fact in found.complaints)
        told = {place.rank for place in places if place.rank is not None}
        spoke = {rank for rank in found.progress if rank != NOBODY}
        return frozenset(told | spoke | self._mapping.ranks)


def _order(fact: Error | End | Complaint) -> int:
    return fact.order
