"""Which lines belong to which attempt or run.

A file is cut where a launcher says that it starts the group again, and where a run
starts after another has shown its end: a command, a banner or a spawned worker alone
starts nothing, since each node and each rank prints its own, and buffered ones come
late. The files of one job are laid together attempt by attempt, in time where all of
them tell it.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from itertools import groupby, pairwise
from typing import Final, NamedTuple

from dsup.facts.logs.file_names import attempt_of
from dsup.facts.logs.line import LogLine
from dsup.facts.logs.ranks import placed
from dsup.facts.logs.stamps import DATED_S
from dsup.facts.logs.starts import Sign, sign

_LEAST_LINES: Final = 3
"""A run of fewer lines at the end of a file is a banner that was printed late."""

_APART_S: Final = 60.0


class Batch(NamedTuple):
    """The lines of one attempt.

    Attributes:
        number: of the attempt as the log tells it, else from 0 in log order.
        lines: in order; of several files, in the order of their times if all have any.
    """

    number: int
    lines: tuple[LogLine, ...]


class _Part(NamedTuple):
    """Lines of one file that belong to one attempt; a number if it is told."""

    number: int | None
    lines: list[LogLine]


def split(lines: Iterable[LogLine]) -> Iterator[Batch]:
    """Yield the attempts that lines tell of, in order.

    Args:
        lines: those of one file together.
    """
    files = [list(_parts(group)) for _, group in groupby(lines, key=lambda x: x.file)]
    order = 0
    for number, parts in _numbered(_jobs(files)):
        merged = _merged(parts)
        parts.clear()
        yield Batch(number, placed(_renumbered(merged, order)))
        order += len(merged)


def _renumbered(lines: list[LogLine], first: int) -> list[LogLine]:
    """Return lines with orders that grow by one; most have them already."""
    return [
        line if line.order == order else line._replace(order=order)
        for order, line in enumerate(lines, first)
    ]


def _parts(lines: Iterable[LogLine]) -> Iterator[_Part]:
    """Yield the attempts of one file."""
    cutter = _Cutter()
    for line in lines:
        cutter.read(line)
    yield from cutter.parts()


class _Failed(NamedTuple):
    """An agent's word of a failed worker: the lines up to there, the highest pid."""

    lines: int
    pid: int


class _Cutter:
    """Cuts one file's lines."""

    def __init__(self) -> None:
        self._parts: list[_Part] = []
        self._lines: list[LogLine] = []
        self._number: int | None = None
        self._ended = False
        self._again = False
        self._fresh = False
        self._starts: set[str] = set()
        self._failed: dict[str, _Failed] = {}
        self._highest: dict[str, int] = {}

    def read(self, line: LogLine) -> None:
        """Take in a line."""
        told = sign(line)
        if told is not None:
            self._cut(told)
        self._lines.append(line)
        if told is not None and told.kind == "again":
            self._close()
            self._fresh = True

    def parts(self) -> list[_Part]:
        """Return the attempts; what was printed late belongs to the one before."""
        self._close()
        if len(self._parts) > 1 and _says_nothing(self._parts[-1]):
            last = self._parts.pop()
            self._parts[-1].lines.extend(last.lines)
        return self._parts

    def _cut(self, told: Sign) -> None:
        if told.kind == "attempt":
            self._attempt(told.number)
        elif told.kind == "start":
            if self._ended and (not told.key or told.key in self._starts):
                self._close()
            self._starts.add(told.key)
        elif told.kind == "end":
            self._ended = True
        elif told.number is not None:
            if told.kind == "failed":
                self._cut_at_failure(told.key, told.number)
            highest = self._highest.get(told.key, 0)
            self._highest[told.key] = max(highest, told.number)

    def _cut_at_failure(self, agent: str, pid: int) -> None:
        """Cut behind an agent's last word of a failure, if it has another one.

        Without ``INFO`` an agent does not say that it starts its workers again. Window:
        the second worker has a higher pid than any that had ended until then, since
        agents in containers may have one pid.
        """
        known = self._failed.get(agent)
        if known is not None and pid > known.pid:
            rest = self._lines[known.lines :]
            del self._lines[known.lines :]
            self._close()
            self._lines = rest
        highest = max(pid, self._highest.get(agent, 0))
        self._failed[agent] = _Failed(len(self._lines) + 1, highest)

    def _attempt(self, number: int | None) -> None:
        known = self._number
        late = known is None and number and self._ended and not self._fresh
        if late or known not in {None, number}:
            self._close()
        self._number, self._fresh = number, False

    def _close(self) -> None:
        if self._lines:
            self._parts.append(_Part(self._number, self._lines))
        self._lines, self._number, self._ended = [], None, False
        self._starts.clear()
        self._failed.clear()


def _says_nothing(part: _Part) -> bool:
    """Return whether a part is a command or a banner and no run."""
    signs = [sign(line) for line in part.lines]
    if part.number is not None or any(x and (x.key or x.kind == "end") for x in signs):
        return False
    texts = (x.text for x, told in zip(part.lines, signs, strict=True) if told is None)
    return sum(any(map(str.isalpha, text)) for text in texts) < _LEAST_LINES


def _jobs(files: list[list[_Part]]) -> list[list[_Part]]:
    """Return the parts that belong together, in order.

    The n-th attempt of a file goes with the n-th of the others, or with those that tell
    the same number; but files whose times lie apart, each with an end of its own, are
    of different runs.
    """
    jobs: dict[int, list[_Part]] = {}
    base = 0
    for parts in files:
        if jobs and _is_later(jobs, parts):
            base = max(jobs) + 1
        for i, part in enumerate(parts):
            told = attempt_of(part.lines[0].file) if len(parts) == 1 else None
            number = base + (i if told is None else told)
            jobs.setdefault(number, []).append(part)
    return [jobs[number] for number in sorted(jobs)]


def _is_later(jobs: dict[int, list[_Part]], parts: list[_Part]) -> bool:
    """Return whether a file's run is another one than that of the files before it."""
    known = [part for job in jobs.values() for part in job]
    first, last = _span(known), _span(parts)
    if first is None or last is None or not (_ends(known) and _ends(parts)):
        return False
    return last[0] > first[1] + _APART_S or first[0] > last[1] + _APART_S


def _span(parts: list[_Part]) -> tuple[float, float] | None:
    times = [
        line.at_s
        for part in parts
        for line in part.lines
        if line.at_s is not None and line.at_s >= DATED_S
    ]
    return (min(times), max(times)) if times else None


def _ends(parts: list[_Part]) -> bool:
    signs = (sign(line) for part in parts for line in part.lines)
    return any(told is not None and told.kind == "end" for told in signs)


def _numbered(jobs: list[list[_Part]]) -> Iterator[tuple[int, list[_Part]]]:
    """Yield jobs with the numbers that they tell, or with their places."""
    told = [_number(job, i) for i, job in enumerate(jobs)]
    grows = all(a < b for a, b in pairwise(told))
    yield from zip(told if grows else range(len(jobs)), jobs, strict=True)


def _number(job: list[_Part], place: int) -> int:
    told = [part.number for part in job if part.number is not None]
    named = (attempt_of(part.lines[0].file) for part in job)
    return max(
        (*told, *(number for number in named if number is not None)), default=place
    )


def _merged(parts: list[_Part]) -> list[LogLine]:
    """Return the lines of several files in time, or one file after the other."""
    keyed = [_timed(part.lines) for part in parts]
    if len(parts) == 1 or any(times is None for times in keyed):
        return [line for part in parts for line in part.lines]
    told = [times for times in keyed if times is not None]
    return [line for _, _, line in heapq.merge(*told, key=lambda row: row[:2])]


def _timed(lines: list[LogLine]) -> list[tuple[float, int, LogLine]] | None:
    """Return lines with the latest time told so far; None where they tell none."""
    first = next((x.at_s for x in lines if x.at_s is not None), None)
    if first is None or first < DATED_S:
        return None
    rows: list[tuple[float, int, LogLine]] = []
    for line in lines:
        at_s = line.at_s
        first = first if at_s is None else max(first, at_s)
        rows.append((first, line.order, line))
    return rows
