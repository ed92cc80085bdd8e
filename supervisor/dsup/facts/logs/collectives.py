"""What communication libraries say of their collectives: watchdogs, checks, traces.

Source: ProcessGroupNCCL.cpp, ProcessGroupWrapper.cpp, TraceUtils.h and
ProcessGroupGloo.cpp of torch 1.8 to 2.13; torch's flight-recorder analyzer; NCCL's and
RCCL's trace of calls.
"""

from __future__ import annotations

import re
from collections import deque
from typing import Final

from dsup.facts.logs.kept import Kept
from dsup.facts.logs.line import LogLine
from dsup.facts.logs.said import Collective, CollectiveKind
from dsup.facts.logs.shown import shown
from dsup.facts.logs.verdict_lines import accusations

TRACES_MAX: Final = 16
_PLACES_MAX: Final = 4096
_SEEN_MAX: Final = 10_000
_WORKS_MIN: Final = 3

_WORDS: Final = (
    "WorkNCCL(",
    "atchdog",
    "Heartbeat monitor timed out",
    "Timeout at NCCL work",
    "timed out in blocking wait",
    "ollectiveFingerPrint",
    "opCount ",
    "onitoredBarrier",
    "collective #",
    "Culprit rank",
    "faulty rank",
    "issing rank",
    "Timed out waiting ",
    "first PG on this rank",
    "(OpType=",
)
_DEVICE: Final = (
    "cuda error",
    "hip error",
    "cuda failure",
    "ecc error",
    "unhandled cuda error",
    "acceleratorerror",
    "xpu error",
    "device-side assert",
    "illegal memory access",
)
_TIMEOUT: Final = (
    "collective operation timeout",
    "Watchdog caught ",
    "before timing out",
    "timed out in blocking wait",
    "detected by watchdog at work",
    "Timeout at NCCL work",
    "Heartbeat monitor timed out",
    "watchdog got stuck",
    "watchdog hang",
)
_AFTER: Final = ("terminated with exception:", "async exception:")
"""After these words stands what a watchdog met; those before them tell nothing."""

_SEQ: Final = re.compile(
    r"SeqNum=(\d{1,18})(?=\D)|at NCCL work: (\d{1,18})|watchdog at work: (\d{1,18})"
    r"|work sequence id: (\d{1,18})|opCount (?:0x)?([0-9a-f]{1,16})"
)
_OP: Final = re.compile(r"OpType=(\w{1,40})(?=\W)|(\w{1,40}): opCount ")
_SIZE: Final = re.compile(r"NumelIn=(\d{1,18})(?=\D)|\bcount (\d{1,18})")
_WAITED: Final = re.compile(r"Timed out waiting \d{1,18}ms")
_RAN: Final = re.compile(
    r"ran for (\d{1,18}) milliseconds|Timed out waiting (\d{1,18})ms"
    r"|got stuck for (\d{1,12}) ?(s)econds"
)
_ENQUEUED: Final = re.compile(r"last enqueued(?: NCCL)?(?: work)?: (-?\d{1,18})")
_COMPLETED: Final = re.compile(r"last completed(?: NCCL)?(?: work)?: (-?\d{1,18})")
_RANK: Final = re.compile(r"\[(?:PG ([^\]]{0,300}?) )?Rank (\d{1,6})\]")
_GUID: Final = re.compile(
    r"(?:ID )?(\w{1,64})(?: PG GUID (\w{1,200}))?(?: ?\((\w{0,200})\))?"
)
_PRINT: Final = re.compile(
    r"Rank (\d{1,6}) is running collective: CollectiveFingerPrint\(([^)]{0,2000})\)"
)
_PRINT_SEQ: Final = re.compile(r"SequenceNumber ?= ?(\d{1,18})")
_PRINT_OP: Final = re.compile(r"OpType ?= ?(\w{1,40})")
_PRINT_SHAPE: Final = re.compile(r"TensorShape ?= ?\[([\d, ]{0,400})\]")
_TRACED: Final = " Running collective: "


class Collectives:
    """What lines tell of collectives."""

    def __init__(self) -> None:
        self._said: Kept[Collective] = Kept()
        self._traces: dict[tuple[object, ...], deque[Collective]] = {}
        self._guessed: set[int] = set()
        self._seen: set[tuple[object, ...]] = set()

    def feed(self, line: LogLine) -> bool:
        """Take in a line; return whether it tells of a collective."""
        text = line.text
        if not any(word in text for word in _WORDS):
            return False
        if "ollectiveFingerPrint" in text and "is running collective" in text:
            self._fingerprints(line)
            return True
        kind = kind_of(text)
        if kind is None:
            return False
        told = _collective(kind, line)
        if line.place.rank is None and "[PG" not in text:
            self._guessed.add(line.order)
        self._add(told)
        return True

    def all(self) -> tuple[Collective, ...]:
        """Return what was told, in the order of the lines."""
        self._doubt()
        traces = [one for kept in self._traces.values() for one in kept]
        return tuple(sorted((*self._said.all(), *traces), key=lambda c: c.order))

    def _doubt(self) -> None:
        """Take back ranks that cannot be global.

        Where torch names no group, one number with several works timed out at once
        is the rank inside several groups.
        """
        works: dict[int, set[tuple[int, str]]] = {}
        for told in self._said.all():
            if told.kind == "timeout" and told.order in self._guessed and told.op:
                rank, seq = told.place.rank, told.seq
                if rank is not None and seq is not None:
                    works.setdefault(rank, set()).add((seq, told.op))
        if not any(len(seqs) >= _WORKS_MIN for seqs in works.values()):
            return
        kept: Kept[Collective] = Kept()
        for told in self._said.all():
            guessed = told.order in self._guessed and not told.group
            place = told.place._replace(rank=None) if guessed else told.place
            kept.add(told._replace(place=place))
        self._said = kept

    def _add(self, told: Collective) -> None:
        if told.kind == "trace":
            self._trace(told)
            return
        # Versions of torch say the same twice and three times.
        key = (
            *(told.kind, told.place[:4], told.group, told.seq, told.op, told.size),
            *(told.enqueued, told.completed, told.accused),
        )
        if key not in self._seen:
            if len(self._seen) < _SEEN_MAX:
                self._seen.add(key)
            self._said.add(told)

    def _trace(self, told: Collective) -> None:
        key = (told.file, told.place, told.group)
        kept = self._traces.get(key)
        if kept is None and len(self._traces) < _PLACES_MAX:
            kept = self._traces[key] = deque(maxlen=TRACES_MAX)
        if kept is not None:
            kept.append(told)

    def _fingerprints(self, line: LogLine) -> None:
        for found in _PRINT.finditer(line.text[:8192]):
            printed = found[2]
            shape = _PRINT_SHAPE.search(printed)
            told = Collective(
                "mismatch",
                line.place._replace(rank=int(found[1]), local_rank=None, pid=None),
                shown(line.text),
                line.file,
                line.number,
                line.order,
                line.at_s,
                _number(_PRINT_SEQ, printed),
                _word(_PRINT_OP, printed),
                _product(shape[1]) if shape else None,
            )
            self._add(told)


def kind_of(text: str) -> CollectiveKind | None:
    """Return what a line says of a collective; None for nothing that tells."""
    lowered = text.lower()
    for word in _AFTER:
        at = lowered.find(word)
        if at >= 0 and any(device in lowered[at:] for device in _DEVICE):
            return "device_error"
    if ": opCount " in text:
        return "trace"
    # Every call is traced with its fingerprint, too: that tells of no mismatch.
    if "CollectiveFingerPrint" in text:
        return None if _TRACED in text else "mismatch"
    if "onitoredBarrier" in text or "faulty rank" in text:
        return "barrier"
    if any(word in text for word in _TIMEOUT):
        return "timeout"
    if _WAITED.search(text):
        return "timeout"
    return "desync" if accusations(text) is not None else None


def _collective(kind: CollectiveKind, line: LogLine) -> Collective:
    text = line.text
    group, rank = _group(text)
    place = line.place
    if place.rank is None and rank is not None and group == "":
        place = place._replace(rank=rank)
    ran = _RAN.search(text)
    seq = _SEQ.search(text)
    return Collective(
        kind,
        place,
        shown(text),
        line.file,
        line.number,
        line.order,
        line.at_s,
        _sequence(seq),
        _word(_OP, text),
        _number(_SIZE, text),
        group,
        _milliseconds(ran),
        _number(_ENQUEUED, text),
        _number(_COMPLETED, text),
        accusations(text) or (),
    )


def _group(text: str) -> tuple[str, int | None]:
    """Return the process group and the rank inside it that a c10 line names.

    The default group is called by an empty name; a line of a torch that knows no
    names of groups may be of any, and is taken for one of the default group.
    """
    found = _RANK.search(text)
    if not found:
        return "", None
    rank = int(found[2])
    named = _GUID.match(found[1].strip()) if found[1] else None
    if not named:
        return "", rank
    default = named[1] == "0" or named[3] == "default_pg"
    return ("" if default else named[3] or named[1]), rank


def _sequence(found: re.Match[str] | None) -> int | None:
    if found is None:
        return None
    if found[5]:
        return int(found[5], 16)
    return int(found[1] or found[2] or found[3] or found[4])


def _milliseconds(found: re.Match[str] | None) -> int | None:
    if found is None:
        return None
    return int(found[3]) * 1000 if found[3] else int(found[1] or found[2])


def _number(form: re.Pattern[str], text: str) -> int | None:
    found = form.search(text)
    return int(next(g for g in found.groups() if g)) if found else None


def _word(form: re.Pattern[str], text: str) -> str:
    found = form.search(text)
    return next(g for g in found.groups() if g).upper() if found else ""


def _product(shape: str) -> int:
    size = 1
    for part in shape.split(","):
        size *= int(part) if part.strip().isdigit() else 1
    return size
