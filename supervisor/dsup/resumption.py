"""What an attempt resumes from: an aide looks for the newest valid checkpoint."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

from dsup import shortage
from dsup.core.enter import SCAN_S
from dsup.edges import preparation
from dsup.edges.preparation import Found, Location

if TYPE_CHECKING:
    from collections.abc import Callable

    from dsup.core.job import Job
    from dsup.edges.aide import Aides


class Resumption:
    """Looks for checkpoints, where the job says where they are.

    Args:
        job: what to do.
        aides: one of them looks.
        warn: says what is odd about what was found.

    Attributes:
        found: by the last search; nothing before the first one.
        cause: of the obstacle, where there is one.
    """

    def __init__(self, job: Job, aides: Aides, warn: Callable[[str], None]) -> None:
        self.found = Found()
        self.cause = "storage_io"
        self._location = Location(job.checkpoint_dir, job.checkpoint_glob)
        self._aides = aides
        self._warn = warn

    def search(self, done: Callable[[], None]) -> None:
        """Look for the newest valid checkpoint.

        Args:
            done: called once ``found`` says what there is, or why nobody knows.
        """
        if not any(self._location):
            done()
            return
        # What was found for the attempt before must not stand for an answer that never
        # comes.
        self.found, self.cause = preparation.decode(b""), "storage_io"
        work = partial(preparation.search, self._location)
        until_s = time.monotonic() + SCAN_S
        self._aides.start(work, until_s, partial(self._take, done))

    @property
    def obstacle(self) -> str:
        """Why no attempt can begin; empty where it can."""
        reason = self.found.error
        if not reason or reason.startswith("cannot "):
            return reason
        return f"cannot look for a checkpoint, because {reason}"

    def _take(self, done: Callable[[], None], answer: bytes) -> None:
        self.found = found = preparation.decode(answer)
        if error := self._aides.refusal:
            self.cause, reason = shortage.told("look for a checkpoint", error)
            self.found = Found(error=reason)
        for reason in found.rejected:
            self._warn(f"passed over a checkpoint that is not whole: {reason}")
        if found.strangers:
            directory = self._location.directory
            self._warn(
                f"{directory} holds {found.strangers} entries of another layout than "
                f"dsup's (--checkpoint-glob '{directory}/*' looks for those)"
            )
        done()
