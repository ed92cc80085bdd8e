"""A drill: scenarios, some at a time, each in a place of its own; none is left."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Final, NamedTuple

from dsup.drill import judging
from dsup.drill.judging import Seen
from dsup.drill.place import AbandonedError, MissedError, Place
from dsup.drill.play import SkippedError, play
from dsup.drill.scenarios import Scenario
from dsup.linux.libc import become_subreaper

_AT_ONCE: Final = 2
_LOOK_S: Final = 0.05
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
def drill(asked: Asked, is_over: Callable[[], bool]) -> Iterator[Iterator[Result]]:
    """Play scenarios; give their results in order, each as soon as it can be had.

    However the block is left, all jobs are ended, and what is not kept is removed. A
    handler of a signal must not raise here: it may do so before the block is entered.

    Args:
        asked: what is to be played.
        is_over: tells that no more results are wanted.
    """
    become_subreaper()  # so whatever a job leaves is a descendant
    base = tempfile.mkdtemp(prefix="dsup-drill-")
    abandoned = threading.Event()

    def play_one(scenario: Scenario) -> Result:
        if abandoned.is_set():
            raise AbandonedError
        place = Place(os.path.join(base, scenario.name), asked.environment, abandoned)
        return _played(scenario, asked, place)

    try:
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            try:
                playing = [pool.submit(play_one, one) for one in asked.scenarios]
                yield _results(playing, is_over)
            finally:
                abandoned.set()
    finally:
        if not os.listdir(base):
            os.rmdir(base)


def _results(
    playing: Sequence[Future[Result]], is_over: Callable[[], bool]
) -> Iterator[Result]:
    for one in playing:
        while not wait((one,), _LOOK_S).done:
            if is_over():
                return
        yield one.result()


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
