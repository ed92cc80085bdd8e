"""Why ranks may be slower than others, as far as the kernel counts it.

What counts is what has risen since the first look: how long a rank's main thread was
ready and waited for a processor, in how many periods a cgroup's quota of processor time
was used up, and how much of all processors' time a hypervisor took. It is read only
while a rank lags.

Source: https://docs.kernel.org/scheduler/sched-stats.html (schedstat), proc_stat(5).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Final, NamedTuple

from dsup.linux import proc
from dsup.linux.gauge import Gauge

WAITED_SHARE: Final = 0.2
THROTTLED_SHARE: Final = 0.05
STOLEN_SHARE: Final = 0.05
"""From such shares of the time on it is worth saying."""

_NS: Final = 1e-9
_STOLEN: Final = 7
"""Of the first line of /proc/stat, counted after its name; guests' time comes later."""


class _Counts(NamedTuple):
    """Counters of one rank that only rise."""

    at_s: float
    waited_s: float
    periods: int
    throttled: int
    ticks: int
    stolen: int


class Slowness:
    """What has slowed ranks down since they were looked at first.

    Args:
        pids: pid of each rank.
        root: stands for ``/`` wherever a path is read.
    """

    def __init__(self, pids: Mapping[int, int], root: str = "") -> None:
        self._pids = dict(pids)
        self._root = root
        self._gauges: dict[int, Gauge] = {}
        self._first: dict[int, _Counts] = {}

    def look(self, ranks: Collection[int], now_s: float) -> dict[int, str]:
        """Return why ranks may be slow; of one that is new nothing is known yet.

        Args:
            ranks: those that lag; the others are forgotten.
            now_s: agent clock, seconds.
        """
        for rank in self._gauges.keys() - set(ranks):
            self._gauges.pop(rank).close()
            del self._first[rank]
        found = {}
        for rank in self._pids.keys() & set(ranks):
            now = self._counts(rank, now_s)
            said = list(_reasons(self._first.setdefault(rank, now), now))
            if said:
                found[rank] = " and ".join(said)
        return found

    def close(self) -> None:
        """Close every file."""
        self.look((), 0.0)

    def _counts(self, rank: int, now_s: float) -> _Counts:
        pid = self._pids[rank]
        gauge = self._gauges.get(rank) or Gauge(pid, self._root)
        self._gauges[rank] = gauge
        _, _, periods, throttled = gauge.read()
        line = (
            proc.read_bytes(f"{self._root}/proc/stat").partition(b"\n")[0].split()[1:]
        )
        ticks = list(map(int, line[: _STOLEN + 1]))
        stolen = ticks[_STOLEN] if len(ticks) > _STOLEN else 0
        waited = proc.read_bytes(f"{self._root}/proc/{pid}/schedstat").split()[1:2]
        waited_s = int(waited[0]) * _NS if waited else 0.0
        return _Counts(now_s, waited_s, periods, throttled, sum(ticks), stolen)


def _reasons(first: _Counts, now: _Counts) -> Iterator[str]:
    passed_s, periods = now.at_s - first.at_s, now.periods - first.periods
    ticks = now.ticks - first.ticks
    waited = (now.waited_s - first.waited_s) / passed_s if passed_s > 0 else 0.0
    throttled = (now.throttled - first.throttled) / periods if periods > 0 else 0.0
    stolen = (now.stolen - first.stolen) / ticks if ticks > 0 else 0.0
    if throttled >= THROTTLED_SHARE:
        yield f"its cgroup's quota was used up in {throttled:.0%} of the periods"
    if waited >= WAITED_SHARE:
        yield f"it waited for a processor for {waited:.0%} of the time"
    if stolen >= STOLEN_SHARE:
        yield f"the hypervisor took {stolen:.0%} of the processors' time"
