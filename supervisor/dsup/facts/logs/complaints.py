"""Lines that tell something by themselves: complaints of libraries and of launchers."""

from __future__ import annotations

import re
from typing import Final

from dsup.facts.logs.complaint_words import (
    CODE,
    CRASHES,
    GLIBC,
    NOISE,
    OWN_NOISE,
    SIGNALS,
    WORDS,
)
from dsup.facts.logs.hints import speaker
from dsup.facts.logs.kept import Kept
from dsup.facts.logs.line import LogLine, Place
from dsup.facts.logs.said import Complaint, ComplaintKind
from dsup.facts.logs.shown import shown

LOOKED_AT_CHARS: Final = 2048
_AGAIN_MAX: Final = 8
_KEYS_MAX: Final = 20_000

_REFUSAL: Final = re.compile(r"[\w./-]{1,200}: error: \S")
_NO_OPTION: Final = re.compile(
    r"[\w./-]{1,200}: (?:unrecognized|unknown|invalid) option\b"
)
"""What getopt says, and programs that launchers start with."""

_NO_REFUSAL: Final = (
    "srun: ",
    "slurmstepd: ",
    "sbatch: ",
    "gcc: ",
    "g++: ",
    "nvcc: ",
    "scancel: ",
    "ninja: ",
    "salloc: ",
    "cc1plus: ",
    "fatal: ",
)
_KILLED: Final = re.compile(r"Killed$|.{0,300}: \d{1,9} Killed(?: |$)")
_LAST_TRY: Final = re.compile(
    r"(?:no route to host|network is unreachable), retrying \((\d{1,4})/\1\)"
)
"""NCCL tells of its tries to connect as of any news; after the last one it fails."""

_KERNEL: Final = (
    "nvrm: xid",
    "out of memory: kill",
    "memory cgroup out of memory",
    "oom-kill:",
)
_SIGNAL_NUMBER: Final = re.compile(r"(?i)caught signal (\d{1,2}) ")
_GLOG: Final = "*** aborted at "
"""glog's first line about any deadly signal; a later one tells which."""

_PEER: Final = re.compile(
    r"(?:remote peer|from peer|by peer) \[?([\w.:-]{1,255}?)\]?(?::\d{1,5})?<"
    r"|(?:remote peer|from peer|by peer) \[([\d.a-f:]{2,45})\]"
    r"|(?:remote peer|from peer) ([\w.-]{1,255})"
)
_UCX: Final = re.compile(r"\[([\w.-]{1,64}):(\d{1,9}) {0,9}:\d{1,9} {0,9}:\d{1,9}\]")
_NODE: Final = re.compile(r"(?i)\bnode '?([\w.-]{1,255})'?")
_DEVICE_ASSERT: Final = re.compile(r"thread: \[[\d,]{1,40}\] Assertion `")
_OUR_ASSERT: Final = re.compile(r": Assertion `.{1,500}' failed\.")


class Complaints:
    """The complaints of a log.

    Attributes:
        said: all of them; of one that its place repeats, the first few.
    """

    def __init__(self) -> None:
        self.said: Kept[Complaint] = Kept()
        self._seen: dict[tuple[object, ...], int] = {}

    def feed(self, line: LogLine, *, traced: bool = False) -> bool:
        """Take in a line; return whether it complains.

        Args:
            line: the line.
            traced: it is of a traceback: its exception tells the same.
        """
        if traced:
            return False
        kind = kind_of(line.text)
        if kind is None or (line.ranked and _by_kernel(line.text)):
            return False
        self.add(line, kind)
        return True

    def add(self, line: LogLine, kind: ComplaintKind) -> None:
        """Keep a complaint, unless its place has said so several times."""
        place = _placed(kind, line)
        key = (kind, place)
        times = self._seen.get(key, 0)
        if times >= _AGAIN_MAX:
            return
        if times or len(self._seen) < _KEYS_MAX:
            self._seen[key] = times + 1
        lowered = line.text[:LOOKED_AT_CHARS].lower()
        self.said.add(
            Complaint(
                kind,
                place,
                shown(line.text),
                line.file,
                line.number,
                line.order,
                line.at_s,
                _signum(kind, lowered),
                _peer(kind, line.text[:LOOKED_AT_CHARS]),
            )
        )


def _by_kernel(text: str) -> bool:
    """Return whether a line has a kernel's words; no rank of torch's prints such."""
    lowered = text[:LOOKED_AT_CHARS].lower()
    return any(words in lowered for words in _KERNEL)


def _placed(kind: ComplaintKind, line: LogLine) -> Place:
    """Return whose complaint it is: some tell a pid or a rank in their text."""
    place = line.place
    if kind == "crash" and place.pid is None:
        found = _UCX.search(line.text[:300])
        return place._replace(node=found[1], pid=int(found[2])) if found else place
    if kind == "nan" and place.rank is None:
        return place._replace(rank=speaker(line.text))
    return place


def kind_of(text: str) -> ComplaintKind | None:
    """Return what a line complains of; None where it does not."""
    lowered = text[:LOOKED_AT_CHARS].lower()
    noise = any(word in lowered for word in NOISE)
    if not noise:
        kind = _crash(text, lowered)
        if kind:
            return kind
    for kind, words in WORDS:
        if any(word in lowered for word in words):
            if kind == "nan" and CODE.search(lowered):
                return None
            own = kind in {"ecc", "oom_host"} and not _only_own(lowered)
            own = own or _LAST_TRY.search(lowered) is not None
            return kind if own or not noise else None
    if _DEVICE_ASSERT.search(text):
        return "device"
    return None


def _only_own(lowered: str) -> bool:
    return not any(word in lowered for word in OWN_NOISE)


def _crash(text: str, lowered: str) -> ComplaintKind | None:
    """Look for a process that tells of its own crash, and for who was refused."""
    if any(word in lowered for word in GLIBC) or _OUR_ASSERT.search(text):
        return "glibc"
    if any(word in lowered for word in CRASHES):
        return "crash"
    if _KILLED.match(text.strip()):
        return "killed"
    refused = _REFUSAL.match(text) and not text.startswith(_NO_REFUSAL)
    if refused or _NO_OPTION.match(text):
        return "refusal"
    return None


def _signum(kind: ComplaintKind, lowered: str) -> int | None:
    if kind not in {"crash", "loader"}:
        return 9 if kind == "killed" and " killed" in f" {lowered}"[-40:] else None
    told = _SIGNAL_NUMBER.search(lowered)
    if told:
        return int(told[1])
    if _GLOG in lowered:
        return None
    return next((number for word, number in SIGNALS if word in lowered), None)


def _peer(kind: ComplaintKind, text: str) -> str:
    if kind in {"remote", "completion", "store"}:
        found = _PEER.search(text)
        return next((g for g in found.groups() if g), "") if found else ""
    if kind == "node":
        named = _NODE.search(text)
        return named[1] if named else ""
    return ""
