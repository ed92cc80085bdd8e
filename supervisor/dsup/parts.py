"""What an agent is made of: how the run stands, its edges, and the wires between them.

Each edge knows as little of the others as it can; here is where one is handed another.
"""

from __future__ import annotations

import os
import time
from collections import deque
from typing import TYPE_CHECKING

from dsup.attempt import OOM_SCORE, Attempt
from dsup.core import events as ev
from dsup.core import machine
from dsup.edges.aide import Aides
from dsup.edges.group import WorkerGroup
from dsup.edges.loop import Loop
from dsup.hangs import Hangs
from dsup.inquiry import Inquiry
from dsup.leftovers import Leftovers
from dsup.onlookers import Onlookers
from dsup.present import Sources
from dsup.provision import Provision
from dsup.publisher import Publisher
from dsup.recorder import Recorder
from dsup.report.console import View
from dsup.steps import Steps
from dsup.stops import Stops

if TYPE_CHECKING:
    from dsup.core.job import Job
    from dsup.core.state import State
    from dsup.linux.guardian import Guardian
    from dsup.takeover import LookBack


class Parts:
    """The parts of one agent.

    Args:
        job: what to do.
        guardian: the process that cleans up if this one is killed.
        look_back: finds the run before; None to look for none.

    Attributes:
        state: how the run stands, by what the machine has answered.
        events: what has happened that it has not answered yet.
        exit_code: of the run; None until it is over.
        nice: this process's niceness, which the ranks get.
    """

    def __init__(
        self, job: Job, guardian: Guardian, look_back: LookBack | None
    ) -> None:
        self.job = job
        self.state = machine.initial(job.spec)
        self.events: deque[ev.Event] = deque()
        self.exit_code: int | None = None
        self.nice = os.getpriority(os.PRIO_PROCESS, 0)
        self.loop = Loop()
        self.aides = aides = Aides(self.loop)
        self.group = WorkerGroup(job.environment.get(OOM_SCORE, ""))
        self.recorder = Recorder(job, guardian.will, self.loop)
        self.attempt = Attempt(job, aides, self.recorder, self.post)
        self.publisher = desk = Publisher(job, self.recorder, self.situation)
        self.inquiry = Inquiry(job, aides, desk, self.loop, self.post)
        self.recorder.on_directories = self.attempt.on_directories
        self.recorder.on_tails = self.inquiry.gathering.on_tails
        self.hangs = Hangs(job, aides, desk, self.post)
        self.hangs.clues = self.inquiry
        known = job, self._sources(), aides, self.post
        self.onlookers = Onlookers(*known, relay=guardian.relay, look_back=look_back)
        self.stops = Stops(self.attempt, self.post)
        self.steps = Steps(self.attempt, self.post)
        self.leftovers = Leftovers(self.post)
        self.provision = Provision()

    def _sources(self) -> Sources:
        """Return who knows how the run stands."""
        looking = self.inquiry, self.publisher, self.recorder, self.hangs
        return Sources(self.situation, self.attempt, *looking)

    def post(self, event: ev.Event) -> None:
        """Have the machine answer an event, after those that are waiting."""
        self.events.append(event)

    def cannot(self, cause: str, code: int, reason: str) -> None:
        """Tell that the ranks cannot be started, or cannot go on."""
        number, now_s = self.state.attempt, time.monotonic()
        self.post(ev.Cannot("cannot", now_s, number, cause, code, reason))

    def situation(self) -> tuple[State, View]:
        """Return how the run stands, and what lines about it need beside that."""
        return self.state, self.attempt.view()

    @property
    def owned(self) -> set[int]:
        """Children whose exit status somebody here waits for."""
        return {*self.group.pids, *self.spared}

    @property
    def spared(self) -> set[int]:
        """Children that are not the ranks' doing."""
        helpers = self.attempt.helpers | self.inquiry.helpers | self.onlookers.pids
        return {*self.aides.pids, *self.recorder.pids, *helpers}
