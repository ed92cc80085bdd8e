"""Kin: which rank a process, or a thread, of this node belongs to.

The kernel log names processes and threads by number, often after they have gone. So the
numbers are collected while their owners live: now and then what is quick to see, and
everything at a death. A helper that was born and gone between two looks stays unknown.

An orphan, adopted by the agent, is known again by what it was seen as, by its session,
or by the pipe of a rank that it still writes to. One that has a session of its own,
writes elsewhere, and was never seen below its rank stays unknown.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from dsup.core.state import NEVER
from dsup.linux import proc

ENTRIES_MAX: Final = 65_536

_EARLY_S: Final = (1.0,)
_EVERY_S: Final = 2.0
_QUICK_MAX: Final = 256
_CLOSE_MAX: Final = 1024
_STREAMS: Final = (1, 2)


class _Seen(NamedTuple):
    """Whose it is, and when it was made; None for a thread, which is not asked."""

    rank: int
    start: int | None


class Kin:
    """The processes and threads seen below the ranks of one attempt.

    Args:
        entries_max: so many ids are remembered; the one not met for longest goes first.

    Attributes:
        due_s: when the next ``look`` is due, agent clock, seconds; ``NEVER`` while
            there is no rank.
        present: rank of each process that the last ``look`` has met, no threads.
    """

    def __init__(self, entries_max: int = ENTRIES_MAX) -> None:
        self.due_s = NEVER
        self.present: dict[int, int] = {}
        self._entries_max = entries_max
        self._began_s: float | None = None
        self._roots: dict[int, _Seen] = {}
        self._seen: dict[int, _Seen] = {}
        # One that several have, or dsup itself, tells nothing: None.
        self._pipes: dict[str, int | None] = dict.fromkeys(_pipes(os.getpid()))

    def add(self, rank: int, pid: int) -> None:
        """Take in a rank that was just started."""
        found = proc.stat(pid)
        self._roots[pid] = _Seen(rank, found.start if found else None)
        for pipe in _pipes(pid):
            shared = self._pipes.get(pipe, rank) != rank
            self._pipes[pipe] = None if shared else rank
        self.due_s = min(self.due_s, 0.0)

    def look(self, now_s: float) -> None:
        """See what is quick to see: helpers of main threads, and threads of the ranks.

        Args:
            now_s: agent clock, seconds; the first look is the start of the schedule.
        """
        self.present = {}
        for pid, seen in self._roots.items():
            if self._runs(pid):
                self._see_threads(pid, seen.rank)
                below = self._walk(pid, seen.rank, proc.main_children, _QUICK_MAX)
                self.present |= dict.fromkeys([pid, *below], seen.rank)
        self._trim()
        if self._began_s is None:
            self._began_s = now_s
        age_s = now_s - self._began_s
        early = (at_s for at_s in _EARLY_S if at_s > age_s)
        self.due_s = self._began_s + next(early, age_s + _EVERY_S)

    def look_closely(self) -> None:
        """See everything: children of every thread, all threads, zombies, orphans.

        Entries whose number is another process's by now are forgotten.
        """
        strangers = self._strangers()
        for pid in strangers - self._roots.keys():
            del self._seen[pid]
        met = {pid: seen.rank for pid, seen in self._roots.items() if self._runs(pid)}
        met |= self._orphans(without=strangers)
        for pid, rank in tuple(met.items()):
            below = self._walk(pid, rank, proc.children, _CLOSE_MAX)
            met |= dict.fromkeys(below, rank)
        for pid, rank in met.items():
            self._see_threads(pid, rank)
        self._trim()

    def pids(self) -> Mapping[int, int]:
        """Return the rank of each id seen; the ranks' own pids are always there."""
        known = self._seen | self._roots
        return {pid: seen.rank for pid, seen in known.items()}

    def _runs(self, pid: int) -> bool:
        """Return whether a rank's pid is still its own."""
        found = proc.stat(pid)
        return found is not None and found.start == self._roots[pid].start

    def _walk(
        self, root: int, rank: int, children: Callable[[int], list[int]], limit: int
    ) -> list[int]:
        """See the processes below a root; return them, at most so many."""
        found = [root]
        for pid in found:  # it grows meanwhile
            room = limit - len(found)
            born = [child for child in children(pid) if child not in self._roots]
            found += born[: max(room, 0)]
        for pid in found[1:]:
            self._see(pid, rank)
        return found[1:]

    def _see(self, pid: int, rank: int) -> None:
        """Remember a process, and forget what its number was before."""
        seen = self._seen.pop(pid, None)
        if seen is None or seen.rank != rank or seen.start is None:
            found = proc.stat(pid)
            seen = _Seen(rank, found.start if found else None)
        self._seen[pid] = seen

    def _see_threads(self, pid: int, rank: int) -> None:
        seen = _Seen(rank, None)
        for thread in proc.thread_ids(pid):
            if thread != pid:
                self._seen.pop(thread, None)
                self._seen[thread] = seen

    def _strangers(self) -> set[int]:
        """Return known numbers that other processes have now."""
        known = self._seen | self._roots
        there = known.keys() & set(proc.every_pid())
        found = {pid: proc.stat(pid) for pid in there}
        return {
            pid for pid, now in found.items() if now and now.start != known[pid].start
        }

    def _orphans(self, without: set[int]) -> dict[int, int]:
        """See processes that the agent has adopted; return the rank of those known.

        Args:
            without: numbers that do not mean what they meant when they were seen.
        """
        known = {
            pid: seen.rank
            for pid, seen in (self._seen | self._roots).items()
            if seen.start is not None and pid not in without
        }
        found = {}
        for pid in proc.children(os.getpid()):
            rank = None if pid in self._roots else self._of_orphan(pid, known)
            if rank is not None:
                found[pid] = rank
                self._see(pid, rank)
        return found

    def _of_orphan(self, pid: int, known: Mapping[int, int]) -> int | None:
        orphan = proc.stat(pid)
        for number in (pid, orphan.session if orphan else pid):
            if number in known:
                return known[number]
        told = (self._pipes.get(pipe) for pipe in _pipes(pid))
        return next((rank for rank in told if rank is not None), None)

    def _trim(self) -> None:
        """Drop what was not met for longest; the ranks themselves stay."""
        while self._seen and len(self._seen) + len(self._roots) > self._entries_max:
            del self._seen[next(iter(self._seen))]


def _pipes(pid: int) -> list[str]:
    """Return the pipes that are a process's stdout and stderr."""
    found = []
    for fd in _STREAMS:
        try:
            found.append(os.readlink(f"/proc/{pid}/fd/{fd}"))
        except OSError:
            continue
    return [name for name in found if name.startswith("pipe:")]
