"""Kernel-log records as text: from /dev/kmsg, and from journald's copy of it.

Only the kernel's own records count. It writes them with facility 0, and gives whatever
a process writes into /dev/kmsg another one, even where that process asks for 0; so the
facility tells a fact from a look-alike, and no text does.

Source: https://www.kernel.org/doc/Documentation/ABI/testing/dev-kmsg
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

from dsup.facts.kernel import Record

_RECORD_MAX_BYTES: Final = 16_384
_LINE_MAX_CHARS: Final = 131_072
"""A record that journald shows as a list of numbers is that much longer."""

_FIELDS: Final = re.compile(
    rb"(?P<prio>\d{1,9}),(?P<seq>\d{1,20}),(?P<at_us>\d{1,20}),"
    rb"(?P<flags>[^;\n]*);(?P<text>[^\n]*)"
)
"""Example: ``6,3104,11205284744,-,caller=T17;cgroup: fork rejected …``; what follows
the flag is unknown to old readers and may grow."""

_GOES_ON: Final = b"+"
"""Kernels of 3.5 to 4.9 mark so what was printed in the middle of a line."""

_NUMBER: Final = re.compile(r"[0-9]{1,20}")
_ESCAPE: Final = re.compile(rb"\\x([0-9a-fA-F]{2})")


def parse(raw: bytes) -> Record | None:
    r"""Return what one read of /dev/kmsg brought.

    Lines after the first tell of the device and are no text; line breaks of the message
    itself are escaped, as are backslashes, so that undoing it once is exact. Bytes that
    are no UTF-8 become ``\xNN``.

    Returns:
        The record; None if it is not the kernel's own, or no record.
    """
    fields = _FIELDS.match(raw[:_RECORD_MAX_BYTES])
    if not fields or not is_kernel(int(fields["prio"])):
        return None
    text = _ESCAPE.sub(lambda code: bytes([int(code[1], 16)]), fields["text"])
    goes_on = fields["flags"].startswith(_GOES_ON)
    return Record(int(fields["seq"]), int(fields["at_us"]), _decoded(text), goes_on)


def parse_journal(line: str) -> Record | None:
    """Return what one line of ``journalctl -k -o json`` tells.

    Returns:
        The record, which has no sequence number there; None if it is not the kernel's
        own, or no record.
    """
    entry = _entry(line)
    facility = entry.get("SYSLOG_FACILITY")
    if entry.get("_TRANSPORT") != "kernel" or facility != "0":
        return None
    return _of_entry(entry)


def parse_audit(line: str) -> Record | None:
    """Return what one line of ``journalctl _TRANSPORT=audit -o json`` tells.

    Audit's records come from the kernel by a way of their own. journald has them where
    it listens there; the kernel log has them as well where no audit daemon does.

    Returns:
        The record, for ``audit.match``; None if audit did not write it.
    """
    entry = _entry(line)
    return _of_entry(entry) if entry.get("_TRANSPORT") == "audit" else None


def is_kernel(prio: int) -> bool:
    """Return whether the kernel itself wrote a record.

    Args:
        prio: the record's first field, facility times 8 plus level.
    """
    return prio >> 3 == 0


def _entry(line: str) -> dict[str, Any]:
    """Return the fields of a line of the journal; none if it is no entry."""
    try:
        entry = json.loads(line) if len(line) <= _LINE_MAX_CHARS else None
    except (ValueError, RecursionError):
        return {}
    return entry if isinstance(entry, dict) else {}


def _of_entry(entry: dict[str, Any]) -> Record | None:
    text = _message(entry.get("MESSAGE"))
    kernels = _number(entry.get("_SOURCE_MONOTONIC_TIMESTAMP"))
    readers = _number(entry.get("__MONOTONIC_TIMESTAMP"))
    at_us = readers if kernels is None else kernels
    return None if text is None else Record(None, at_us, text)


def _message(value: object) -> str | None:
    """Return a MESSAGE; where it is no printable UTF-8, journald lists its bytes."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        try:
            return _decoded(bytes(value))
        except (TypeError, ValueError):
            return None
    return None


def _number(value: object) -> int | None:
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        return int(value)
    return None


def _decoded(text: bytes) -> str:
    return text.decode(errors="backslashreplace")
