"""How the run stands now, put together from all who know a part of it.

Nothing here waits, and nothing but /proc is opened. What takes more than a glance is
looked at once and kept for as long as it can be true.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from dsup.core.state import State
from dsup.linux import usage

if TYPE_CHECKING:
    from dsup.core.job import Job
    from dsup.devices import Found
    from dsup.facts.samples import Sample
    from dsup.newest import Newest
    from dsup.present_sources import Attempt, Hangs, Inquiry, Publisher, Recorder
    from dsup.report.console import View
    from dsup.report.rank_rows import Gpu, Process

FRESH_S: Final = 0.2
"""So long a document is true enough for whoever asks again."""

CPU_OVER_S: Final = 60.0
"""Processor time is counted since the last reading, if that is not older."""

_CPU_MIN_S: Final = 0.5
_SAMPLES_MAX: Final = 32
"""More than there are in ``snapshot.WINDOW_S``."""


class Sources(NamedTuple):
    """Who knows what.

    Attributes:
        situation: returns the state, and what lines need beside it.
    """

    situation: Callable[[], tuple[State, View]]
    attempt: Attempt
    inquiry: Inquiry
    publisher: Publisher
    recorder: Recorder
    hangs: Hangs


class Present:
    """The present of a run.

    Args:
        job: what is done.
        sources: who knows a part of it.

    Attributes:
        ledger: tells where the time went until then, agent clock, seconds.
        causes: of failed attempts, by attempt.
        newest: looks for checkpoints that no rank tells of; None for nobody.
    """

    def __init__(self, job: Job, sources: Sources) -> None:
        self._job = job
        self._sources = sources
        self.causes: dict[int, str] = {}
        self.newest: Newest | None = None
        self.ledger: Callable[[float], Mapping[str, Any] | None] = lambda _: None
        self._launched_s = time.monotonic()
        self._made_s = -1.0
        self._made: dict[str, Any] = {}
        self._readings: dict[int, tuple[float, float, float | None]] = {}
        self._told: tuple[bytes, ...] = ()
        self._samples: tuple[Sample, ...] = ()

    def document(self, *, anew: bool = False) -> Mapping[str, Any]:
        """Return the status document, ``dsup.status/1``, at most 0.2 s old.

        Args:
            anew: it is to be of this very moment.
        """
        now_s = time.monotonic()
        if anew or not self._made or now_s - self._made_s >= FRESH_S:
            self._made, self._made_s = self._make(now_s), now_s
        return self._made

    def _make(self, now_s: float) -> dict[str, Any]:
        from dsup.report import snapshot

        state, view = self._sources.situation()
        attempt = self._sources.attempt
        publisher = self._sources.publisher
        scene = snapshot.Scene(
            state=state,
            now_s=now_s,
            offset_s=time.clock_gettime(time.CLOCK_REALTIME) - time.monotonic(),
            launched_s=self._launched_s,
            pids=view.pids,
            page=attempt.page.copy() if attempt.page else attempt.last_page,
            processes=self._processes(state, view.pids, now_s),
            samples=self._recent(self._sources.inquiry.file.samples),
            gpus=_gpus(self._sources.inquiry.found),
            rate=self._sources.recorder.rate,
            verdicts=tuple(publisher.verdicts.values()),
            ended=publisher.ended,
            ledger=self.ledger(now_s),
            failures=dict(Counter(self.causes.values())),
            asked=frozenset(self._sources.inquiry.file.asked),
            limits_s=self._sources.hangs.limits_s(),
            steps_s=self._sources.hangs.steps_s(),
            looked_for=self.newest.found if self.newest else None,
        )
        name = snapshot.name_of(self._job, os.uname().nodename)
        return snapshot.document(name, scene)

    def _processes(
        self, state: State, pids: Mapping[int, int], now_s: float
    ) -> dict[int, Process]:
        from dsup.report.rank_rows import Process

        before, self._readings = self._readings, {}
        found = {}
        for rank in state.alive:
            pid = pids.get(rank, 0)
            now = usage.read(pid) if pid else None
            if now is not None:
                reading = _weighed(before.get(pid), now, now_s)
                self._readings[pid] = reading
                found[rank] = Process(reading[2], now.rss_kb)
        return found

    def _recent(self, lines: Sequence[bytes]) -> tuple[Sample, ...]:
        from dsup.facts.samples import decode_all

        told = tuple(lines[-_SAMPLES_MAX:])
        if told != self._told:
            self._told, self._samples = told, decode_all(told)
        return self._samples


def _weighed(
    before: tuple[float, float, float | None] | None, now: usage.Usage, now_s: float
) -> tuple[float, float, float | None]:
    """Return time, processor time and percent of one processor of a reading.

    Without one before it the percent is that of the process's whole life.
    """
    if before is not None:
        since_s = now_s - before[0]
        if since_s < _CPU_MIN_S:
            return before
        if since_s <= CPU_OVER_S:
            return now_s, now.cpu_s, _percent(now.cpu_s - before[1], since_s)
    life_s = time.clock_gettime(time.CLOCK_BOOTTIME) - now.made_s
    return now_s, now.cpu_s, _percent(now.cpu_s, life_s) if life_s > 0 else None


def _percent(cpu_s: float, over_s: float) -> float:
    return round(100.0 * max(0.0, cpu_s) / over_s, 1)


def _gpus(found: Found | None) -> dict[int, Gpu]:
    """Return the GPU of each rank, and how the probe's last word has it."""
    if found is None or not found.probed.cards:
        return {}
    from dsup.facts import gpu_health, nvml
    from dsup.facts.hardware import gpu_of
    from dsup.report.rank_rows import Gpu

    cards = nvml.decode_cards(found.probed.cards)
    before = nvml.decode_readings(found.probed.before)
    after = before | nvml.decode_readings(found.probed.after)
    events = nvml.decode_events(found.probed.events)
    gpus = {}
    for rank, access in found.access.items():
        gpu = gpu_of(cards, access)
        if gpu is not None:
            own = tuple(event for event in events if event.number == gpu.number)
            first = before.get(gpu.number, nvml.Reading())
            known = first, after.get(gpu.number), own
            health = gpu_health.health(gpu, *known)
            errors = gpu_health.memory_errors(gpu, *known)
            gpus[rank] = Gpu(gpu.number, health.state, health.problem, errors)
    return gpus
