"""Checkpoints that no rank tells of are looked for by an aide, now and then."""

import json
import os
import time

import pytest

from dsup.newest import EVERY_S, Newest, search

OLD_S = 1000.0


@pytest.fixture
def checkpoints(tmp_path):
    """Give ``checkpoints(step)``: make one that is long complete; returns its time."""

    def make(step):
        path = tmp_path / f"step-{step}.ckpt"
        path.write_bytes(b"weights")
        made_s = time.time() - OLD_S + step
        os.utime(path, (made_s, made_s))
        return made_s

    return make


class Aides:
    """Who would work in a process of its own works when the test says so."""

    def __init__(self):
        self.waiting = []

    def start(self, work, _deadline_s, done):
        """Take work in."""
        self.waiting.append((work, done))

    def end(self, *, silent=False):
        """Have all of it done; or nothing, as by one that hangs."""
        for work, done in self.waiting:
            done(b"" if silent else work())
        self.waiting = []


@pytest.fixture
def aides():
    """Give aides."""
    return Aides()


@pytest.fixture
def newest(tmp_path, aides):
    """Give who looks for checkpoints."""
    return Newest(str(tmp_path / "*.ckpt"), aides)


def test_what_ranks_save_is_found_while_they_live(newest, aides, checkpoints):
    """The first look comes a minute after the start, the next one a minute later."""
    now_s = time.monotonic()
    newest.started(now_s)
    checkpoints(100)
    made_s = checkpoints(300)
    newest.look(now_s, alive=True)
    newest.look(now_s + EVERY_S, alive=False)
    assert not aides.waiting

    newest.look(now_s + EVERY_S, alive=True)
    aides.end()
    assert newest.found.step == 300
    ago_s = time.monotonic() - newest.found.at_s
    assert ago_s == pytest.approx(time.time() - made_s, abs=10.0)

    newest.look(now_s + EVERY_S, alive=True)
    assert not aides.waiting
    checkpoints(400)
    newest.look(time.monotonic() + EVERY_S, alive=True)
    aides.end()
    assert newest.found.step == 400


def test_a_file_system_that_gave_no_answer_is_left_alone(newest, aides, checkpoints):
    """Nobody joins one that hangs there; the next attempt begins anew."""
    checkpoints(100)
    newest.started(0.0)
    newest.look(EVERY_S, alive=True)
    aides.end(silent=True)
    newest.look(1e6, alive=True)
    assert not aides.waiting
    silent = newest.found
    assert silent is None

    newest.started(1e6)
    newest.look(1e6 + EVERY_S, alive=True)
    aides.end()
    assert newest.found.step == 100


def test_without_a_pattern_nobody_looks(aides):
    """What ranks tell by themselves needs no look at the disk."""
    idle = Newest("", aides)
    idle.started(0.0)
    idle.look(1e6, alive=True)

    assert not aides.waiting


def test_a_checkpoint_without_a_step_is_none(tmp_path):
    """Its name does not say how far the training was."""
    (tmp_path / "best.ckpt").write_bytes(b"weights")
    os.utime(tmp_path / "best.ckpt", (0, 0))

    assert json.loads(search(str(tmp_path / "*.ckpt"))) is None
