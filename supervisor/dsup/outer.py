"""The error file that whoever started dsup may wait for, as torch's launchers do."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Final

from dsup import places
from dsup.edges import outer_error

if TYPE_CHECKING:
    from dsup.core.job import Job
    from dsup.core.verdict import Verdict
    from dsup.devices import Helpers

WRITE_S: Final = 2.0
_WANTED: Final = "TORCHELASTIC_ERROR_FILE"


def hand_on(job: Job, verdict: Verdict, aides: Helpers) -> None:
    """Have it written, if one is wanted: the first rank's, or what the verdict says.

    Args:
        job: was started with the name of the file.
        verdict: of the last attempt.
        aides: one of them writes.
    """
    target = job.environment.get(_WANTED, "")
    if not target:
        return
    rank = verdict.first_ranks[0] if verdict.first_ranks else 0
    first = places.error_file(job.run_dir, verdict.attempt, rank)
    wall_s = time.clock_gettime(time.CLOCK_REALTIME)
    told = outer_error.fallback(verdict.summary, rank, verdict.status, wall_s)
    work = partial(outer_error.work, first, target, told, verdict.status)
    aides.start(work, time.monotonic() + WRITE_S, lambda _: None)
