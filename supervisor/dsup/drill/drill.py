"""A drill: scenarios, some at a time, each in a place of its own; none is left."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Final, NamedTuple

from dsup.drill import judging
from dsup.drill.judging import Seen
from dsup.drill.place import AbandonedError, MissedError, Place
from dsup.drill.play import SkippedError, play
from dsup.drill.scenarios import Scenario
from dsup.linux.libc import become_subreaper

_AT_ONCE: Final = 2
_REMOVALS: Final = 5


class Asked(NamedTuple):
    """What a drill is to be.

    Attributes:
        scenarios: which, in this order.
        ranks: of each job.
        keep: leave the run directories there.
        environment: of the jobs.
    """

    scenarios: Sequence[Scenario]
    ranks: int
    keep: bool
    environment: Mapping[str, str]


class Result(NamedTuple):
    """How a scenario went.

    Attributes:
        seen: what came of it; None where it stopped short.
        misses: what went another way than it must, in words.
        skipped: why it cannot be had here; empty where it can.
        home: its directory; empty once it is removed.
        took_s: all in all, seconds.
    """

    scenario: Scenario
    seen: Seen | None
    misses: tuple[str, ...] = ()
    skipped: str = ""
    home: str = ""
    took_s: float = 0.0

    @property
    def outcome(self) -> str:
        """Whether it passed, failed, or was skipped."""
        if self.skipped:
            return "skipped"
        return "failed" if self.misses else "passed"


@contextmanager
def drill(asked: Asked) -> Iterator[Iterator[Result]]:
    """Play scenarios; give their results in order, each as soon as it can be had.

    However the block is left, all jobs are ended, and what is not kept is removed.
    """
    become_subreaper()  # so whatever a job leaves is a descendant
    base = tempfile.mkdtemp(prefix="dsup-drill-")
    abandoned = threading.Event()
    pool = ThreadPoolExecutor(_AT_ONCE)

    def one(scenario: Scenario) -> Result:
        home = os.path.join(base, scenario.name)
        return _played(scenario, asked, Place(home, asked.environment, abandoned))

    try:
        yield pool.map(one, asked.scenarios)
    finally:
        abandoned.set()
        pool.shutdown(cancel_futures=True)
        if not os.listdir(base):
            os.rmdir(base)


def _played(scenario: Scenario, asked: Asked, place: Place) -> Result:
    began_s = time.monotonic()
    result = Result(scenario, None, ("it was abandoned",))
    try:
        seen = play(scenario, place, asked.ranks)
        result = Result(scenario, seen, judging.misses(scenario.expected, seen))
    except SkippedError as why:
        result = Result(scenario, None, skipped=str(why))
    except MissedError as why:
        said = filter(None, (str(why), place.last_line()))
        result = Result(scenario, None, tuple(said))
    except AbandonedError:
        asked = asked._replace(keep=False)
    finally:
        place.clear()
        if scenario.name == "oom":
            place.forget_groups()
    kept = asked.keep or (result.outcome == "failed" and not _was_abandoned(result))
    if not kept:
        _remove(place)
    took_s = time.monotonic() - began_s
    return result._replace(home=place.home if kept else "", took_s=took_s)


def _remove(place: Place) -> None:
    """Remove a place; a last process that was just being made may still write there."""
    for _ in range(_REMOVALS):
        shutil.rmtree(place.home, ignore_errors=True)
        if not os.path.lexists(place.home):
            return
        place.clear()


def _was_abandoned(result: Result) -> bool:
    return result.misses == ("it was abandoned",)
