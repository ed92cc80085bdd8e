"""Those outside who are told how a run stands: here is where each of them is wired.

They are told after everything else is done, and none of them is waited for: an onlooker
that is slow, gone or wrong costs a line, never the run.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from dsup.edges.service import Service

if TYPE_CHECKING:
    from dsup.core.job import Job


class Onlookers:
    """All who look on.

    Args:
        job: what is done.
    """

    def __init__(self, job: Job) -> None:
        self._service = Service(job.environment, (os.getpid(), os.getppid()))

    @property
    def due_s(self) -> float:
        """When ``look`` is due, agent clock, seconds."""
        return self._service.due_s

    def started(self) -> None:
        """Tell that the ranks of an attempt run."""
        self._service.ready()

    def look(self, now_s: float, status: str | None) -> None:
        """Tell how it stands.

        Args:
            now_s: the present, agent clock, seconds.
            status: a new line about it; None where nothing is new.
        """
        self._service.beat(now_s)
        if status is not None:
            self._service.status(status)

    def ending(self) -> None:
        """Tell that the run is on its way out."""
        self._service.stopping()
