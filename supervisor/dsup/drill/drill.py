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


class _Stage:
    """Where scenarios are played, by any thread, until it is cleared.

    A signal that comes while a pool starts a thread has the pool forget that one, so it
    is by what they play that threads are waited for.
    """

    def __init__(self, asked: Asked) -> None:
        self._asked = asked
        self._base = tempfile.mkdtemp(prefix="dsup-drill-")
        self._abandoned = threading.Event()
        self._playing = 0
        self._change = threading.Condition()

    def play(self, scenario: Scenario) -> Result:
        """Play one of them.

        Raises:
            AbandonedError: the drill is to end.
        """
        with self._change:
            if self._abandoned.is_set():
                raise AbandonedError
            self._playing += 1
        try:
            home = os.path.join(self._base, scenario.name)
            place = Place(home, self._asked.environment, self._abandoned)
            return _played(scenario, self._asked, place)
        finally:
            with self._change:
                self._playing -= 1
                self._change.notify()

    def clear(self) -> None:
        """Have all end; remove the directory if nothing is kept there."""
        with self._change:
            self._abandoned.set()
            self._change.wait_for(lambda: not self._playing)
        if not os.listdir(self._base):
            os.rmdir(self._base)


@contextmanager
def drill(asked: Asked) -> Iterator[Iterator[Result]]:
    """Play scenarios; give their results in order, each as soon as it can be had.

    However the block is left, all jobs are ended, and what is not kept is removed.
    """
    become_subreaper()  # so whatever a job leaves is a descendant
    stage = _Stage(asked)
    pool = ThreadPoolExecutor(_AT_ONCE)
    try:
        yield pool.map(stage.play, asked.scenarios)
    finally:
        stage.clear()
        pool.shutdown(cancel_futures=True)


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
