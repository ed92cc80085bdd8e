"""A reporter's life: started within a limit, finished once, and never in the way."""

import logging
import threading

import pytest

from dsup_runtime import deferred, worker_info
from dsup_runtime.lifecycle import outcome
from dsup_runtime.lifecycle.reporting import Reporting

DONE = outcome.finished()
SHORT_S = 0.05


class Tracker:
    """A reporter that notes what it is told, and fails or hangs where asked to."""

    def __init__(self, *, fails=(), hangs=(), **more):
        self.told = []
        self.fails = fails
        self.hangs = hangs
        self.released = threading.Event()
        vars(self).update(more)

    def start(self, info):
        """Note the rank."""
        self._tell("start", info.rank)

    def event(self, name, fields):
        """Note the name and how much there is to it."""
        self._tell("event", f"{name} {len(fields)}")

    def finish(self, result):
        """Note the status."""
        self._tell("finish", result.status)

    def _tell(self, call, what):
        if call in self.hangs:
            self.released.wait(600)
        if call in self.fails:
            raise ConnectionError(f"no server at {call}")
        self.told.append((call, what))


@pytest.fixture
def live():
    """Let reporters live; nothing of them stays."""
    trackers = []

    def start(tracker):
        trackers.append(tracker)
        reporting = Reporting(tracker)
        reporting.start(worker_info.info(), SHORT_S if "start" in tracker.hangs else 60)
        return reporting

    yield start
    for tracker in trackers:
        tracker.released.set()
    deferred.clear()


def test_a_reporter_hears_the_start_the_events_and_one_end(live):
    """A second finish, from whatever thread, changes nothing."""
    tracker = Tracker()
    reporting = live(tracker)
    reporting.finish(DONE, {"stop": {"step": 4}}, 60)
    reporting.finish(outcome.stopped("late", step=None), {}, 60)

    assert tracker.told == [("start", 0), ("event", "stop 1"), ("finish", "FINISHED")]


def test_a_start_that_fails_ends_the_run_at_the_next_stop(live):
    """It is deferred by default; the record that never began is not finished."""
    tracker = Tracker(fails=["start"])
    live(tracker).finish(DONE, {}, 60)

    first = deferred.first()
    assert (type(first.error), first.where) == (ConnectionError, "reporter.start")
    assert tracker.told == []


def test_a_reporter_that_is_not_required_costs_a_warning(live, caplog):
    """With required = False the training goes on without it."""
    live(Tracker(fails=["start"], required=False))

    assert deferred.first() is None
    assert "cannot report this run: no server at start" in caplog.text
    assert [record.levelno for record in caplog.records] == [logging.WARNING]


def test_a_start_that_hangs_is_bounded(live):
    """The run learns of it as of any error; a record that begins late still ends."""
    tracker = Tracker(hangs=["start"])
    reporting = live(tracker)

    assert isinstance(deferred.first().error, TimeoutError)
    assert "cannot start the reporter within 0 s" in str(deferred.first().error)
    tracker.released.set()
    for thread in threading.enumerate():
        if thread.name == "dsup-report":
            thread.join(60)
    reporting.finish(DONE, {}, 60)
    assert tracker.told == [("start", 0), ("finish", "FINISHED")]


def test_a_finish_that_hangs_is_bounded(live, caplog):
    """It is logged, and what comes after it comes."""
    live(Tracker(hangs=["finish"])).finish(DONE, {}, SHORT_S)

    assert "cannot wait longer for the reporter to finish" in caplog.text


def test_a_finish_that_fails_is_logged_and_not_raised(live, caplog):
    """The run's own error, or success, is what counts."""
    live(Tracker(fails=["finish"])).finish(DONE, {}, 60)

    assert "cannot finish the report" in caplog.text
    assert "no server at finish" in caplog.text


def test_an_event_that_fails_does_not_keep_the_end_away(live):
    """The outcome is worth more than what was noted before it."""
    tracker = Tracker(fails=["event"])
    live(tracker).finish(DONE, {"stop": {}}, 60)

    assert tracker.told == [("start", 0), ("finish", "FINISHED")]


@pytest.mark.parametrize("raised", [SystemExit(0), KeyboardInterrupt()])
def test_a_start_that_exits_is_an_error_like_any(live, raised):
    """A tracker's sys.exit in its thread would go unseen."""

    def start(info):
        raise raised

    live(Tracker(start=start))

    assert "the reporter ended its start with" in str(deferred.first().error)
