"""Records of the audit system: who died of a signal that dumps core.

Record 1701 is written for every such death (segmentation fault, abort, bus error,
illegal instruction, …), after the process's own handlers and whatever its core limit.
It is in the kernel's log while no daemon takes it, and in the journal else. SIGKILL and
SIGTERM write none.

Source: Linux kernel/auditsc.c (audit_core_dumps), kernel/audit.c.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from dsup.core.printable import printable
from dsup.facts.kernel import TEXT_MAX_CHARS, Record


class Abend(NamedTuple):
    """A death that audit record 1701 (ANOM_ABEND) tells of.

    Attributes:
        pid: of the process (not the thread), in the initial pid namespace.
        comm: its name, decoded.
        exe: the program; empty if unknown.
        signum: what it died of.
        at_us: when the kernel log printed it, microseconds since boot; None if unknown.
        text: the record, printable.
    """

    pid: int
    comm: str
    exe: str
    signum: int
    at_us: int | None = None
    text: str = ""


_HEAD: Final = re.compile(
    r"(?:audit: )?type=(?:1701|ANOM_ABEND) (?:msg=)?audit\("
    r"|(?:audit(?:\[\d{1,10}\])?: )?ANOM_ABEND "
)
"""Examples: ``audit: type=1701 audit(1700000000.123:45): auid=… pid=41 comm="python"
exe="/usr/bin/python3.12" sig=11 res=1``; in the journal ``ANOM_ABEND auid=…``."""

_FIELD: Final = re.compile(
    r'(?<!\S)(?P<name>pid|comm|exe|sig)=(?:"(?P<quoted>[^"\n]{0,4096})"'
    r"|(?P<word>[^\s\"]{1,8192}))"
)
_DIGITS_MAX: Final = 10
_SIGNALS: Final = range(1, 65)


def match(records: Iterable[Record]) -> list[Abend]:
    """Return the deaths that records tell of, in their order, each process once.

    Args:
        records: of the kernel, or of the journal's copy of audit's own.
    """
    found: dict[int, Abend] = {}
    for record in records:
        abend = _abend(record)
        if abend is not None:
            # The same death may be told by the kernel and by the journal.
            found.setdefault(abend.pid, abend)
    return list(found.values())


def _abend(record: Record) -> Abend | None:
    text = record.text[:TEXT_MAX_CHARS]
    if not _HEAD.match(text):
        return None
    fields: dict[str, str] = {}
    for part in _FIELD.finditer(text):
        quoted = part["quoted"]
        # Values from outside are quoted, or in hexadecimal if they hold odd characters.
        hexed = quoted is None and part["name"] in {"comm", "exe"}
        value = _unhexed(part["word"]) if hexed else quoted or part["word"] or ""
        fields.setdefault(part["name"], value)
    pid, signum = _number(fields.get("pid")), _number(fields.get("sig"))
    if pid is None or signum is None or signum not in _SIGNALS:
        return None
    return Abend(
        pid,
        fields.get("comm", ""),
        fields.get("exe", ""),
        signum,
        record.at_us,
        printable(text),
    )


def _unhexed(word: str) -> str:
    """Return a value that was written in hexadecimal; as it stands if it was not."""
    try:
        return bytes.fromhex(word).decode(errors="backslashreplace")
    except ValueError:
        return "" if word in {"(null)", "?"} else word


def _number(value: str | None) -> int | None:
    if value is None or len(value) > _DIGITS_MAX or not value.isdecimal():
        return None
    return int(value)
