"""Ranks that stand in the text of a line and stay there. Pure."""

from __future__ import annotations

import re
from typing import Final

_WHAT: Final = "  what():  "
_GROUP: Final = re.compile(
    r"\[(?:PG (?:ID )?(\w{1,64})(?: PG GUID \w{1,64})?(?: ?\(([^)]{0,200})\))? )?"
    r"Rank (\d{1,6})\]"
)
_OWN: Final = re.compile(
    r"(?:\[\w{1,8}\])?\[rank[ :=_-]{0,2}(\d{1,6})(?:/\d{1,6})?\]"
    r"|[(<]?rank[ :=_#-]{0,2}(\d{1,6})(?:/\d{1,6})?[)>]?(?::| ?\||,| - | step| iter)",
    re.IGNORECASE,
)
_GPU: Final = re.compile(r"\[GPU[ :=_-]{0,2}(\d{1,4})\]", re.IGNORECASE)


def rank_in(text: str) -> int | None:
    """Return the global rank that a line says it is of, at its start.

    The ranks in c10's ``[PG 1 Rank 2]`` count inside the group, so those of the default
    group, number 0, count alone. A bare ``[Rank 2]`` is taken for global, as most jobs
    have that one group; ``ranks.placed`` takes it back where others contradict it.
    """
    start = text[:400].removeprefix(_WHAT)
    if found := _GROUP.match(start):
        group, name = found[1], found[2] or ""
        default = group in {None, "0"} or name == "default_pg"
        return int(found[3]) if default else None
    if found := _OWN.match(start):
        return int(found[1] or found[2])
    return None


def is_bare(text: str) -> bool:
    """Return whether a line begins with c10's bare ``[Rank 2]``."""
    return text[:24].removeprefix(_WHAT).startswith("[Rank ")


def device_in(text: str) -> int | None:
    """Return the local rank that a line says it is of, as a GPU's number."""
    found = _GPU.match(text)
    return int(found[1]) if found else None


_SEQUENCE: Final = re.compile(r"timeout: WorkNCCL\(SeqNum=(\d{1,18})[,)]")
_DATE: Final = re.compile(
    r"  time      : (\d{4})-\d\d-\d\d_|\*\*\* .{1,100} CANCELLED AT (\d{4})-"
)


def sequence_in(text: str) -> int | None:
    """Return the sequence number that a watchdog gave up on."""
    found = _SEQUENCE.search(text[:400])
    return int(found[1]) if found else None


def dated_in(text: str) -> int | None:
    """Return the year that a line of a launcher's summary tells."""
    found = _DATE.search(text[:200])
    return int(found[1] or found[2]) if found else None
