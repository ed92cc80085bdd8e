"""The census: what ranks and their helpers have done since the last one.

Everything comes from /proc, and nothing in it waits for a process. A helper that is met
for the first time counts from then on; one that has ended counts by its parent, once
that has collected it. What a quick census does not see, children of other threads than
the main one, a close one does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from dsup.core.activity import Work
from dsup.linux import proc

PROCESSES_MAX: Final = 256
"""So many processes of a rank are looked at."""

_STATE, _FAULTS, _TIMES, _START = 0, slice(7, 11), slice(11, 15), 19
"""Of /proc/PID/stat, counted from the state; with those of collected children."""

_GONE: Final = frozenset({b"Z", b"X"})
_QUEUED: Final = 1  # of /proc/PID/schedstat
_NS: Final = 1e-9
_WROTE: Final = b"wchar: "


class _Account(NamedTuple):
    """What a process has done in all; ``wrote`` is None where that is unknown."""

    ticks: int
    wrote: int | None
    faults: int = 0
    queued_ns: int = 0


class Census:
    """Counts what the ranks of one attempt do.

    Args:
        pids: pid of each rank.
    """

    def __init__(self, pids: Mapping[int, int]) -> None:
        self._pids = dict(pids)
        self._known: dict[tuple[int, int], _Account] = {}

    def take(self, alive: Iterable[int], *, close: bool) -> dict[int, Work]:
        """Return what ranks have done since the last census; the first tells nothing.

        Args:
            alive: ranks that have not ended and been collected.
            close: see all their helpers, which takes longer.
        """
        children = proc.children if close else proc.main_children
        before, met = self._known, dict[tuple[int, int], _Account]()
        works = {}
        for rank in alive:
            family = dict(_accounts(self._pids[rank], children))
            if family:
                met |= family
                works[rank] = _work(family, before)
        # One that a quick census does not meet may be met again.
        self._known = met if close else before | met
        return works

    def forgive(self) -> None:
        """Count what ranks have written by now as nothing: they were asked to."""
        for pid in self._pids.values():
            for key, now in _accounts(pid, proc.children):
                if (old := self._known.get(key)) is not None:
                    met = old._replace(wrote=now.wrote, faults=now.faults)
                    self._known[key] = met


def _work(
    family: Mapping[tuple[int, int], _Account],
    before: Mapping[tuple[int, int], _Account],
) -> Work:
    pairs = [(before.get(key, now), now) for key, now in family.items()]
    ticks = sum(max(now.ticks - old.ticks, 0) for old, now in pairs)
    wrote = any(now.wrote is None or now.wrote != old.wrote for old, now in pairs)
    faults = sum(max(now.faults - old.faults, 0) for old, now in pairs)
    queued_ns = sum(max(now.queued_ns - old.queued_ns, 0) for old, now in pairs)
    joined = not family.keys() <= before.keys()
    return Work(ticks * proc.TICK_S, wrote, faults, joined, queued_ns * _NS)


def _accounts(
    root: int, children: Callable[[int], list[int]]
) -> Iterator[tuple[tuple[int, int], _Account]]:
    """Yield a rank's processes and what they have done; nothing if it has gone."""
    family = [root]
    for pid in family:  # it grows meanwhile
        stat = proc.read_bytes(f"/proc/{pid}/stat")
        fields = stat[stat.rfind(b")") + 2 :].split(None, _START + 1)
        if len(fields) <= _START or fields[_STATE] in _GONE:
            if pid == root:
                return
            continue
        ticks, faults = (sum(map(int, fields[part])) for part in (_TIMES, _FAULTS))
        queued_ns = _queued_ns(pid) if pid == root else 0
        account = _Account(ticks, _wrote(pid), faults, queued_ns)
        yield (pid, int(fields[_START])), account
        family += children(pid)[: max(PROCESSES_MAX - len(family), 0)]


def _wrote(pid: int) -> int | None:
    """Return how many bytes a process has written, to whatever; None if unknown."""
    _, found, rest = proc.read_bytes(f"/proc/{pid}/io").partition(_WROTE)
    number = rest.partition(b"\n")[0]
    return int(number) if found and number.isdigit() else None


def _queued_ns(pid: int) -> int:
    """Return how long a main thread has waited for a processor; 0 if unknown."""
    fields = proc.read_bytes(f"/proc/{pid}/schedstat").split()
    return int(fields[_QUEUED]) if len(fields) > _QUEUED else 0
