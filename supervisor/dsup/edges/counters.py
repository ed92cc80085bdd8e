"""The kernel's counters during one attempt: OOM kills and refused forks.

They are the second source beside the kernel log: they need no rights, and nobody can
forge them. Which one says what:

- ``oom_kill`` of a rank's own memory cgroup: so many processes that lived there were
  killed by the kernel for memory, whichever limit was hit. If it rose, and a rank died
  of SIGKILL, that was it.
- ``vmstat_oom_kill``: the same for the whole node. A rise may be a stranger's; no rise
  proves that no process was killed for memory at all.
- ``oom``, ``oom_group_kill``: details of the former. ``failcnt``: a hint, where an old
  kernel has nothing better.
- ``pids_max``: so many forks or new threads were refused by a pids limit of the cgroup,
  or of one above it. A limit of the user's (ulimit -u) is counted nowhere.

Not covered: a helper in a cgroup of its own, but by the node's count; and with version
1 a rank that moved after the last ``look`` before its death, because of a dead process
that version tells no cgroup.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from dsup.linux import cgroup, proc
from dsup.linux.cgroup import Groups, Memory

if TYPE_CHECKING:
    from dsup.attribution.timeline import Counter
    from dsup.linux.cgroup import Group, Key, Mount

_FROM_ZERO: Final = " (entered after the start, counted from 0)"
_KILLS: Final = frozenset({"oom_kill", "failcnt", cgroup.VMSTAT})


class Counters:
    """The counters of one attempt's ranks, compared with how they stood at its start.

    Args:
        root: stands for ``/`` wherever a path is read.

    Attributes:
        cgroups: memory cgroup of each rank, as /proc/PID/cgroup names it.
    """

    def __init__(self, root: str = "") -> None:
        self.cgroups: dict[int, str] = {}
        self._root = root
        self._mounts: tuple[Mount, ...] = ()
        self._pids: dict[int, int] = {}
        self._dead: set[int] = set()
        self._told: dict[int, bytes] = {}
        self._living: dict[int, Groups] = {}
        self._ranks: dict[Groups, set[int]] = {}
        self._keys: dict[Groups, frozenset[Key]] = {}
        self._before: dict[Key, int] = {}
        self._after: dict[Key, int] = {}
        self._from_zero: set[Key] = set()

    def snapshot(self, pids: Mapping[int, int]) -> None:
        """Note how the counters stand, now that the ranks run.

        Args:
            pids: pid of each rank.
        """
        self._mounts = cgroup.mounts(self._root)
        self._before |= cgroup.vmstat(self._root)
        self._pids |= pids
        self.look()

    def look(self) -> None:
        """Notice ranks that have moved; their new cgroup counts from now on."""
        for rank in self._pids.keys() - self._dead:
            self._notice(rank, self._pids[rank], dead=False)

    def note_death(self, rank: int, pid: int) -> None:
        """Notice where a rank ended up, while its zombie can be looked at.

        If it has moved since the last look, into a cgroup that no rank was known to be
        in, that one is taken for new: it counts from 0, and ``where`` says so.
        """
        self._dead.add(rank)
        self._notice(rank, pid, dead=True)
        self.read()

    def read(self) -> None:
        """Note how the counters stand: of a cgroup that is removed the last counts."""
        for living in self._ranks:
            self._after |= cgroup.counters(living)

    def risen(self) -> list[Counter]:
        """Return the counters that have risen since the snapshot."""
        from dsup.attribution.timeline import Counter

        self._after |= cgroup.vmstat(self._root)
        self.read()
        return [
            Counter(key[1], self._where(key), before, after, self._concerned(key))
            for key, before in self._before.items()
            if (after := self._after.get(key, before)) > before
        ]

    @property
    def readable(self) -> bool:
        """Whether an OOM kill of any rank would have been counted somewhere."""
        kills = [key for key in self._before if key[1] in _KILLS]
        if any(name == cgroup.VMSTAT for _, name in kills):
            return True
        counted = {rank for key in kills for rank in self._in(key)}
        return bool(counted) and counted == self._pids.keys()

    def pressure(self) -> float | None:
        """Return the highest memory pressure of the ranks' cgroups, percent.

        It is the share of the last 10 seconds in which some task waited for memory;
        the node's where cgroups do not tell. None if unknown.
        """
        groups = {living.unified for living in self._living.values()} or {None}
        told = (cgroup.pressure(group, self._root) for group in groups)
        return max((value for value in told if value is not None), default=None)

    def memory(self) -> tuple[int | None, int | None]:
        """Return memory in use and limit, bytes, of the cgroup that all ranks live in.

        Where each has its own, that is the one which holds these. None for what is
        unknown.
        """
        place = _common([living.memory for living in self._living.values()])
        found = cgroup.memory(place) if place else Memory()
        return found.current_bytes, found.limit_bytes

    def limit_bytes(self, rank: int) -> int | None:
        """Return how much memory a rank's cgroup may have; None for no limit."""
        living = self._living.get(rank)
        if living is None or living.memory is None:
            return None
        return cgroup.memory(living.memory).limit_bytes

    def _notice(self, rank: int, pid: int, *, dead: bool) -> None:
        told = cgroup.membership(pid, self._root)
        if not told or told == self._told.get(rank):
            return
        found = cgroup.groups(told, self._mounts)
        if dead or proc.is_dying(pid):
            found = _of_version_2(found, self._living.get(rank))
        else:
            self._told[rank] = told
        if found != self._living.get(rank):
            self._take(rank, found, from_zero=dead)

    def _take(self, rank: int, living: Groups, *, from_zero: bool) -> None:
        self._living[rank] = living
        if living.memory:
            self.cgroups[rank] = living.memory.name
        if living not in self._ranks:
            self._begin(living, from_zero=from_zero)
        self._ranks[living].add(rank)

    def _begin(self, living: Groups, *, from_zero: bool) -> None:
        """Start to count in cgroups that no rank was known to be in."""
        counted = cgroup.counters(living)
        self._ranks[living] = set()
        self._keys[living] = frozenset(counted)
        for key in counted.keys() - self._before.keys():
            self._before[key] = 0 if from_zero else counted[key]
            self._after[key] = counted[key]
            self._from_zero |= {key} if from_zero else set()

    def _in(self, key: Key) -> set[int]:
        """Return the ranks that live, or have lived, where a counter counts."""
        living = [ranks for at, ranks in self._ranks.items() if key in self._keys[at]]
        return set().union(*living)

    def _where(self, key: Key) -> str:
        return key[0] + (_FROM_ZERO if key in self._from_zero else "")

    def _concerned(self, key: Key) -> tuple[int, ...]:
        """Return the ranks that a counter is about; empty for all, or for the node."""
        ranks = self._in(key)
        return () if ranks == self._pids.keys() else tuple(sorted(ranks))


def _common(places: list[Group | None]) -> Group | None:
    """Return the lowest cgroup that holds all of these; None for none below the top."""
    first, *others = set(places) or {None}
    if first is None or None in others:
        return None
    chains = [set(other.chain) for other in others if other]
    shared = (
        at for at, name in enumerate(first.chain) if all(name in c for c in chains)
    )
    at = next(shared, len(first.chain))
    found = first._replace(chain=first.chain[at:])
    is_top = len(found.chain) <= 1 and at > 0
    return None if is_top else found


def _of_version_2(found: Groups, before: Groups | None) -> Groups:
    """Return a dead process's cgroups: of version 1 those it was last seen in."""
    old = before or found._replace(memory=None, pids=None)
    memory = found.memory if found.memory and found.memory.unified else old.memory
    pids = found.pids if found.pids and found.pids.unified else old.pids
    return Groups(memory, pids, found.unified or old.unified)
