"""A saved kernel log, in whatever way it was printed, and the faults in it.

It may be raw records of /dev/kmsg, any output of dmesg or journalctl, a syslog file, a
console, or a copy of a few lines of one of these in a report. It is read line by line,
in bounded memory.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Final

from dsup.core.printable import printable
from dsup.facts import kmsg
from dsup.facts.kernel import KernelFault, Matching, Record
from dsup.facts.kernel_prefixes import COLOURS, bare
from dsup.facts.kernel_wall import wall_us
from dsup.facts.kernel_words import TELLING
from dsup.facts.kernel_wrapped import Wrapped

LINE_MAX_BYTES: Final = 16_384
"""What is looked at of a line; a record with its prefixes is shorter."""

_AFTERMATH: Final = 4
"""So many lines after a telling one may hold its rest."""

_RAW: Final = re.compile(rb"\d{1,9},(?P<seq>\d{1,20}),\d{1,20},[^;\n]*;")
_NUMBERED: Final = re.compile(rb"^\d{1,9},\d{1,20},\d", re.MULTILINE)
_SUPPRESSED: Final = re.compile(
    r"(?:.{1,80}: )?(?P<many>\d{1,9}) (?:callbacks|messages) suppressed"
    r"|\*\* (?P<dropped>\d{1,9}) printk messages dropped|Future hung task reports are"
)
_TRANSPORT: Final = b"_TRANSPORT"
_WORDS: Final = (*TELLING, b"suppressed", b" dropped", _TRANSPORT)
_RESTS: Final = (b" in ", b"/")
"""A file that a crash was in, and a cgroup's path, may be records of their own."""

_FIELD: Final = re.compile(
    rb"\s{0,8}(?:(?P<plain>_TRANSPORT|MESSAGE)="
    rb"|\"(?P<quoted>_TRANSPORT|MESSAGE)\" : )(?P<value>.{0,16384})",
    re.DOTALL,
)
"""A field of an entry as journalctl writes it with -o verbose, export, json-pretty."""

_WRAPPED: Final = ("log", "message", "msg", "MESSAGE")


class SavedLog:
    """A log that is read line by line.

    Attributes:
        lines: how many there were.
        missing: how many records their sequence numbers show to be lost.
        suppressed: the kernel itself left out so many, or an unknown number.
    """

    def __init__(self) -> None:
        self.lines = 0
        self.missing = 0
        self.suppressed = 0
        self.latest_us: int | None = None
        self._matching = Matching()
        self._next: int | None = None
        self._after = 0
        self._wrapped = Wrapped()
        self._transport = b"kernel"
        self._words: tuple[bytes, ...] = _WORDS

    def take_all(self, lines: Sequence[bytes]) -> None:
        """Take lines in; many at a time cost less."""
        together = b"\n".join(lines)
        self._words = tuple(word for word in _WORDS if word in together)
        if not (self._words or self._after or _NUMBERED.search(together)):
            self.lines += len(lines)
            self._matching.skip(len(lines))
            lines = ()
        for line in lines:
            self.take(line)
        self._words = _WORDS

    def take(self, raw: bytes) -> None:
        """Take one line in."""
        self.lines += 1
        line = raw[:LINE_MAX_BYTES].rstrip(b"\r\n")
        if rest := self._wrapped.rest(line):
            self._matching.take(rest)
            return
        numbered = _RAW.match(line)
        if numbered:
            self._count(int(numbered["seq"]))
        if not self._wanted(line):
            self._matching.skip(1)
            return
        record = kmsg.parse(line) if numbered else self._read(line)
        if record is None:
            self._matching.skip(1)
        else:
            self._hear(record)
            self._matching.take(record)
            self._wrapped.begin(line, record.text)

    def faults(self) -> list[KernelFault]:
        """Return the faults, in the order in which they begin."""
        return self._matching.faults()

    def remarks(self) -> list[str]:
        """Return what is to be said about the log's completeness."""
        said = []
        if self.missing:
            said.append(f"{_many(self.missing, 'record is', 'records are')} missing")
        if self.suppressed:
            said.append("the kernel left out records, as there were too many")
        if self._matching.left_out:
            left = _many(self._matching.left_out, "later fault is", "later faults are")
            said.append(f"{left} left out")
        return said

    def _read(self, line: bytes) -> Record | None:
        """Return what a line tells, which may be a field of an entry."""
        found = _FIELD.match(line)
        if not found:
            return record_of(line)
        value = _value(found["value"], quoted=found["quoted"] is not None)
        if _TRANSPORT in (found["plain"], found["quoted"]):
            self._transport = value
            return None
        return record_of(value) if self._transport == b"kernel" else None

    def _wanted(self, line: bytes) -> bool:
        """Return whether a line may tell of a fault, or be the rest of one that did."""
        if any(word in line for word in self._words):
            self._after = _AFTERMATH
            return True
        self._after = max(0, self._after - 1)
        return bool(self._after) and any(word in line for word in _RESTS)

    def _count(self, seq: int) -> None:
        if self._next is not None and seq > self._next:
            self.missing += seq - self._next
        self._next = seq + 1

    def _hear(self, record: Record) -> None:
        if record.at_us is not None:
            self.latest_us = max(record.at_us, self.latest_us or 0)
        found = _SUPPRESSED.match(record.text)
        if found:
            self.suppressed += int(found["many"] or found["dropped"] or 1)


def _value(raw: bytes, *, quoted: bool) -> bytes:
    """Return what a field holds; nothing if it is no text."""
    if not quoted:
        return raw
    try:
        value = json.loads(raw.rstrip(b", \t"))
    except (ValueError, RecursionError):
        return b""
    return value.encode(errors="backslashreplace") if isinstance(value, str) else b""


def record_of(line: bytes) -> Record | None:
    """Return what a line tells; None if it is no kernel record.

    Args:
        line: without its end.
    """
    text = line.decode(errors="backslashreplace")
    if text.startswith("{") and '"' in text[:4]:
        return _of_json(text)
    return _of_text(text)


def _of_text(text: str) -> Record | None:
    found = bare(text)
    if found is None:
        return None
    stamp = printable(found.stamp)
    wall = wall_us(stamp) if found.at_us is None else None
    return Record(None, found.at_us, found.text, stamp=stamp, wall_us=wall)


def _of_json(text: str) -> Record | None:
    """Return the record in an object: the journal's, or a container runtime's line."""
    try:
        entry = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(entry, dict):
        return None
    if "involvedObject" in entry or "reason" in entry:
        return None  # an event of Kubernetes quotes what some node's log said once
    if "_TRANSPORT" in entry or "__CURSOR" in entry:
        return kmsg.parse_journal(text)
    inner = next((entry[k] for k in _WRAPPED if isinstance(entry.get(k), str)), None)
    return None if inner is None else _of_text(COLOURS.sub("", inner).rstrip("\n"))


def _many(number: int, one: str, more: str) -> str:
    return f"{number} {one if number == 1 else more}"
