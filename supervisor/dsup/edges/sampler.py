"""The sampler: how much memory each rank has and how far it is, now and then.

It is not an event and decides nothing. Samples are kept as the lines they will be in
the run directory, at most some hundred KiB; they are looked at only after a death.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, Protocol

from dsup.core.state import NEVER
from dsup.linux import proc

if TYPE_CHECKING:
    from dsup.facts.samples import Sample

EVERY_S: Final = 10.0
FIRST_S: Final = 0.5
"""The first distance; it doubles up to ``EVERY_S``, for what dies young."""

PROCESSES_MAX: Final = 512
"""So many processes are looked at for one sample: some 10 ms."""

_KIB: Final = 1024
_PAGE_KIB: Final = os.sysconf("SC_PAGE_SIZE") // _KIB


class Page(Protocol):
    """What a sampler needs of the heartbeat page."""

    def steps(self) -> dict[int, int]:
        """Return the last step of each rank that tells its steps."""

    def phases(self) -> dict[int, str]:
        """Return the phase of each rank that tells it."""


class Sampler:
    """Samples of one attempt.

    Args:
        memory: returns the memory in use of the cgroup that all ranks live in, and its
            limit, bytes; None for what is unknown.

    Attributes:
        due_s: when the next one is due, agent clock, seconds.
        lines: one each, oldest first.
    """

    def __init__(
        self, memory: Callable[[], tuple[int | None, int | None]] | None = None
    ) -> None:
        self.due_s = NEVER
        self.lines: list[bytes] = []
        self._memory = memory
        self._distance_s = FIRST_S

    def begin(self, now_s: float) -> None:
        """Begin: every rank runs now."""
        self.due_s = now_s + FIRST_S

    def look(
        self, now_s: float, processes: Mapping[int, int], page: Page | None
    ) -> None:
        """Take a sample.

        Args:
            now_s: agent clock, seconds.
            processes: rank of each process, helpers included.
            page: the heartbeat page; None where there is none.
        """
        from dsup.facts import samples

        self._distance_s = min(2 * self._distance_s, EVERY_S)
        self.due_s = now_s + self._distance_s
        self.lines.append(samples.encode(self._sample(now_s, processes, page)))
        if len(self.lines) > samples.SAMPLES_MAX:
            self.lines = samples.thinned(self.lines)

    def _sample(
        self, now_s: float, processes: Mapping[int, int], page: Page | None
    ) -> Sample:
        from dsup.facts.samples import Sample

        used, limit = self._memory() if self._memory else (None, None)
        return Sample(
            at_s=now_s,
            rss_kb=_resident(processes),
            steps=page.steps() if page else {},
            phases=page.phases() if page else {},
            cgroup_kb=None if used is None else used // _KIB,
            limit_kb=None if limit is None else limit // _KIB,
        )


def _resident(processes: Mapping[int, int]) -> dict[int, int]:
    """Return the resident memory of each rank, its helpers included, KiB."""
    found: dict[int, int] = {}
    for pid in list(processes)[:PROCESSES_MAX]:
        fields = proc.read_bytes(f"/proc/{pid}/statm").split(None, 2)
        if len(fields) > 1:
            rank = processes[pid]
            found[rank] = found.get(rank, 0) + int(fields[1]) * _PAGE_KIB
    return found
