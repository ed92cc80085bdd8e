"""What the agent keeps and says where no descriptor is left for who writes it."""

import contextlib
import gc
import os
import resource
from types import SimpleNamespace

import pytest

from dsup import orders, surroundings
from dsup.core import commands as cmd
from dsup.core import journal
from dsup.edges.loop import Loop
from dsup.edges.scribe import link
from dsup.linux import cgroup
from dsup.linux.guardian import Will
from dsup.recorder import Recorder
from dsup.report import run_file

IMPORTED = cgroup, journal, link, run_file, surroundings
"""Whoever has run out of descriptors can import nothing."""


@contextlib.contextmanager
def descriptors(count):
    """Have so many descriptors left, and no more."""
    gc.collect()  # what other tests have left may hold some, and let them go here
    lowest = os.dup(0)
    os.close(lowest)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest + count, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@pytest.fixture
def recorder(small_job, tmp_path):
    """Make a recorder of a run whose ranks have not been started."""
    return Recorder(small_job._replace(run_dir=str(tmp_path)), Will(), Loop())


def parts_of(recorder, scanned):
    """Return as much of an agent's parts as the order to scan needs."""
    return SimpleNamespace(
        recorder=recorder,
        state=SimpleNamespace(attempt=0),
        attempt=SimpleNamespace(scan=lambda: scanned.append(True)),
    )


def test_the_end_of_a_run_is_said_all_the_same(recorder, capfd):
    """On stderr, by the agent itself: it waits for nobody."""
    recorder.say("given up with exit code 1")
    with descriptors(0):
        recorder.end()

    assert recorder.ended
    said = capfd.readouterr().err
    assert "given up with exit code 1" in said
    assert "cannot keep the journal, because no descriptor is left" in said


def test_run_json_is_no_condition_of_a_run(recorder):
    """A scribe that cannot be forked is tried again; what it is to write waits."""
    with descriptors(1):
        recorder.start(0, ())

    assert recorder.pids == set()
    assert not recorder.ended


def test_a_checkpoint_is_looked_for_without_a_scribe(recorder):
    """Who reads the ranks' output is started with them; logs are no condition."""
    scanned: list[bool] = []
    said: list[tuple[int, str]] = []
    recorder.on_directories = lambda *told: said.append(told)
    parts = parts_of(recorder, scanned)
    with descriptors(0):
        orders.carry_out(parts, cmd.Scan("scan", 0))
    recorder.prepare_directories(1)

    assert scanned == [True]
    assert said == [(1, "no descriptor is left for who writes")]
