"""Those outside who are told how a run stands: here is where each of them is wired.

They are told after everything else is done, and none of them is waited for: an onlooker
that is slow, gone or wrong costs a line, never the run.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from dsup.blackbox import Blackbox
from dsup.companions import Companions
from dsup.control import Control
from dsup.core.enter import KILL_S
from dsup.edges.service import Service
from dsup.newest import Newest
from dsup.present import Present, Sources
from dsup.takeover import Takeover
from dsup.timekeeper import Timekeeper

if TYPE_CHECKING:
    from dsup.core import commands as cmd
    from dsup.core import events as ev
    from dsup.core.job import Job
    from dsup.core.state import State
    from dsup.edges.aide import Aides
    from dsup.takeover import LookBack

LAST_S: Final = 20.0
"""What verdict, journal and guard may take at the very end, by far."""


class Onlookers:
    """All who look on.

    Args:
        job: what is done.
        sources: know how the run stands.
        aides: do what may block.
        post: takes the events that come of what onlookers want.
        relay: to the service manager, through the guard; None where there is none.
        look_back: finds the run before; None to look for none.

    Attributes:
        present: how the run stands, for whoever wants to know.
    """

    def __init__(  # noqa: PLR0913 (each is somebody else's)
        self,
        job: Job,
        sources: Sources,
        aides: Aides,
        post: Callable[[ev.Event], None],
        *,
        relay: int | None,
        look_back: LookBack | None,
    ) -> None:
        self.present = Present(job, sources)
        self._aides = aides
        self._recorder = sources.recorder
        self._blackbox = Blackbox(sources.recorder)
        self._attempt, self._inquiry = sources.attempt, sources.inquiry
        pattern = "" if job.checkpoint_dir else job.checkpoint_glob
        self._newest = self.present.newest = Newest(pattern, aides)
        self._timekeeper = Timekeeper()
        self.present.ledger = self._timekeeper.document
        self._situation = sources.situation
        self._verdicts = sources.publisher.verdicts
        warn = sources.recorder.warn
        self._companions = Companions(job, aides, self.present, warn)
        self._grace_s = job.spec.grace_s
        self._takeover = Takeover(job, look_back, aides, warn, post)
        self._ends = False
        pids = os.getpid(), os.getppid()
        self._service = Service(job.environment, pids, relay)
        self._control = Control(aides.watcher, self.present, post)
        self._listen(job.run_dir, sources)

    def _listen(self, run_dir: str, sources: Sources) -> None:
        """Open the control socket, before the first rank: its directory may hang."""
        reason = self._control.open(run_dir)
        if reason:
            sources.recorder.warn(
                f"cannot listen for dsup status and dsup stop, because {reason}"
            )
        sources.recorder.control = self._control.where

    @property
    def due_s(self) -> float:
        """When ``look`` is due, agent clock, seconds."""
        mine = self._service, self._control, self._companions
        return min(one.due_s for one in mine)

    @property
    def pids(self) -> set[int]:
        """Pids of processes of dsup's own that serve onlookers."""
        return self._companions.pids

    def tell(
        self, before: State, event: ev.Event, commands: tuple[cmd.Command, ...]
    ) -> None:
        """Tell what happened, and what came of it.

        Args:
            before: the state that the event met.
            event: what happened.
            commands: what was ordered because of it.
        """
        self._timekeeper.tell(event, commands)
        if event.kind == "judged" and event.final:
            self.present.causes[event.attempt] = event.cause or "unknown"
        after = self._situation()[0]
        verdict = self._verdicts.get(after.attempt)
        self._companions.tell(before, event, after, verdict)
        for command in commands:
            if command.kind == "exit":
                self._over(after, command)

    def _over(self, state: State, end: cmd.Exit) -> None:
        said = self._timekeeper.line()
        if said:
            self._recorder.say(said)
        self._companions.end(state, end, self._control.where)

    def started(self) -> None:
        """Tell that the ranks of an attempt run."""
        number = self._situation()[0].attempt
        self._blackbox.started(number, self._attempt.page)
        self._newest.started(time.monotonic())
        self._service.ready()
        self._companions.started(self._control.where)
        self._takeover.started()

    def look(self, now_s: float, status: str | None) -> None:
        """Tell how it stands.

        Args:
            now_s: the present, agent clock, seconds.
            status: a new line about it; None where nothing is new.
        """
        state, _ = self._situation()
        if not self._ends and state.stop is not None:
            self.ending()
        self._blackbox.look(state.attempt, self._inquiry.file.samples)
        self._newest.look(now_s, alive=bool(state.alive))
        self._service.beat(now_s)
        self._control.look(now_s)
        self._companions.look(now_s)
        if status is not None:
            self._service.status(status)

    def ending(self) -> None:
        """Tell that the run is on its way out; its last event has not been told yet."""
        if not self._ends:
            self._ends = True
            self._service.stopping(self._grace_s + KILL_S + LAST_S)
