"""What a launch takes over from the run before it, if that was cut off.

Once the first ranks run, an aide looks for that run, closes it, and answers; until
then, and where it gives no answer, the run goes on as if it were the first.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from dsup.core import events as ev

if TYPE_CHECKING:
    from dsup.core.job import Job
    from dsup.edges.aide import Aides

LookBack: TypeAlias = "Callable[[Job], bytes]"
"""Finds the run before, closes it, and returns ``encode``'s answer; in an aide."""

LOOK_S: Final = 20.0
"""A scribe that has lost its agent may hold its journal for half of it."""


class Found(NamedTuple):
    """The run before, unfinished and dead.

    Attributes:
        before: what is to be told of it, should this run take over.
        closed: this launch closed it; else it is nobody's, and only spoken of.
    """

    before: ev.TookOver
    closed: bool


def encode(found: Found) -> bytes:
    """Return the aide's answer."""
    import json

    return json.dumps(found).encode()


def decode(answer: bytes) -> Found | None:
    """Return what an aide has found; None for nothing, or for no answer."""
    if not answer:
        return None
    import json

    try:
        before, closed = json.loads(answer)
        return Found(ev.TookOver(*before), closed)
    except (ValueError, TypeError):
        return None


class Takeover:
    """Looks back, once.

    Args:
        job: what is done.
        look_back: finds the run before; None to look for none.
        aides: one of them looks.
        warn: says what is found of a run that is not taken over.
        post: takes the event of one that is.
    """

    def __init__(
        self,
        job: Job,
        look_back: LookBack | None,
        aides: Aides,
        warn: Callable[[str], None],
        post: Callable[[ev.Event], None],
    ) -> None:
        self._job = job
        self._look_back = look_back
        self._aides = aides
        self._warn = warn
        self._post = post

    def started(self) -> None:
        """Have somebody look, now that the ranks of an attempt run."""
        if self._look_back is not None:
            look = partial(self._look_back, self._job)
            self._look_back = None
            self._aides.start(look, time.monotonic() + LOOK_S, self._answered)

    def _answered(self, answer: bytes) -> None:
        found = decode(answer)
        if found is None:
            return
        if found.closed:
            self._post(found.before._replace(at_s=time.monotonic()))
            return
        from dsup.report.takeover import left_behind

        job = self._job
        above = "" if job.private else os.path.dirname(job.run_dir)
        self._warn(left_behind(found.before.run, found.before.cause, above))
