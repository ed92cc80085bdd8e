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
from dsup.facts.logs.progress import NOBODY, Progresses
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
        self._plain: set[str] = set()
        self._first: int | None = None
        self._last = 0

    def feed(self, line: LogLine) -> None:
        """Take in a line."""
        if self._first is None:
            self._first = line.order
        self._last = line.order
        shape = _DIGITS.sub("0", line.text[:300])
        if shape in self._plain and len(line.text) < _LONG:
            self._mapping.hear(line.place)
            traced, told = self._exceptions.feed(line), self._endings.goes_on(line)
            if not traced and not told:
                self._progress.feed(line)
            return
        if self._read(line) and len(self._plain) < _PLAIN_MAX:
            self._plain.add(shape)

    def _read(self, line: LogLine) -> bool:
        """Take in a line; return whether lines of its shape tell nothing ever."""
        self._mapping.feed(line)
        self._hints.feed(line)
        traced = self._exceptions.feed(line)
        told = self._endings.feed(line)
        telling = self._stops.feed(line)
        telling = self._collectives.feed(line) or telling
        if not telling:
            telling = self._complaints.feed(line, traced=traced)
        if telling or traced or told:
            return False
        self._progress.feed(line)
        lowered = line.text.lower()
        return len(lowered) < _LONG and not any(word in lowered for word in _NUMBERED)

    def finish(self, number: int) -> LoggedAttempt:
        """Return what was told."""
        self._exceptions.finish()
        self._endings.finish()
        ends = self._endings.ends.all()
        self._mapping.note(ends)
        self._mapping.finish()
        errors = (*self._exceptions.workers.all(), *self._own())
        errors = self._hints.placed(self._mapping.locate, errors)
        found = LoggedAttempt(
            number,
            self._mapping.launcher,
            self._mapping.world,
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
