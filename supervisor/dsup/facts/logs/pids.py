"""Which rank a process is, as lines of launchers and libraries tell. Pure."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from typing import Final, NamedTuple

from dsup.facts.logs.line import LogLine

_COMM: Final = re.compile(r"comm 0x\w{1,16} rank (\d{1,6}) n[Rr]anks (\d{1,6}) ")
_HOST: Final = re.compile(r"\s{0,8}host\s{1,8}: (\S{1,128})")
_RANK: Final = re.compile(r"\s{0,8}rank\s{1,8}: (\d{1,6}) \(local_rank: (\d{1,6})\)")
_PID: Final = re.compile(r"\s{0,8}exitcode\s{1,8}: -?\d{1,6} \(pid: (\d{1,8})\)")


class Known(NamedTuple):
    """What the lines of one attempt tell of its processes.

    Attributes:
        by_pid: ``(node, pid)`` to rank; the node is short and empty if not told.
        by_local: local rank to rank, where all nodes that are told of agree.
        nodes: how many hosts a failure summary names.
    """

    by_pid: dict[tuple[str, int], int]
    by_local: dict[int, int]
    nodes: int


def known(lines: Iterable[LogLine]) -> Known:
    """Return which rank each process is."""
    reader = _Reader()
    for line in lines:
        reader.read(line)
    return reader.known()


def short(node: str) -> str:
    """Return a node's name without its domain: NCCL prints one, a summary the other."""
    return node.partition(".")[0]


class _Reader:
    def __init__(self) -> None:
        self._comms: dict[tuple[str, int], tuple[int, int]] = {}
        self._pids: dict[tuple[str, int], set[int]] = defaultdict(set)
        self._locals: dict[int, set[int]] = defaultdict(set)
        self._hosts: set[str] = set()
        self._host = ""
        self._entry: int | None = None

    def read(self, line: LogLine) -> None:
        place, text = line.place, line.text
        if place.pid is not None:
            if place.rank is not None:
                self._pids[short(place.node), place.pid].add(place.rank)
            if "ranks" in text and (found := _COMM.search(text[:200])):
                self._comm((short(place.node), place.pid), found)
        elif " : " in text or ": " in text[:14]:
            self._summary(text)

    def _comm(self, process: tuple[str, int], found: re.Match[str]) -> None:
        """Take in a communicator; the one with most ranks is the whole job."""
        told = int(found[2]), int(found[1])
        known = self._comms.get(process)
        if known is None or told[0] > known[0]:
            self._comms[process] = told

    def _summary(self, text: str) -> None:
        if found := _HOST.match(text):
            self._host = short(found[1])
            self._hosts.add(self._host)
        elif found := _RANK.match(text):
            self._entry = int(found[1])
            self._locals[int(found[2])].add(self._entry)
        elif self._entry is not None and (found := _PID.match(text)):
            self._pids[self._host, int(found[1])].add(self._entry)
            self._entry = None

    def known(self) -> Known:
        world = max((size for size, _ in self._comms.values()), default=0)
        by_pid = {
            process: rank
            for process, (size, rank) in self._comms.items()
            if size == world
        }
        by_pid |= {p: min(ranks) for p, ranks in self._pids.items() if len(ranks) == 1}
        by_local = {n: min(r) for n, r in self._locals.items() if len(r) == 1}
        return Known(by_pid, by_local, len(self._hosts))
