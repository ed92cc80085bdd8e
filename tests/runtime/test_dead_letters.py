"""Dead letters: whole lines, within bounds, and never an error."""

import json
import logging
import math
import os
import resource
import subprocess
import sys

import pytest

from dsup_runtime.numerics.dead_letters import (
    BATCH_ID_MAX_BYTES,
    DeadLetters,
    presentable,
)


class Unspeakable:
    """An object of a user's whose every method fails."""

    def __repr__(self):
        """Fail."""
        raise RuntimeError

    def tolist(self):
        """Fail."""
        raise RuntimeError


class Array:
    """What a tensor or an array looks like."""

    def __init__(self, values):
        self.values = values

    def tolist(self):
        """Return plain numbers."""
        return self.values


def lines(path):
    with open(path) as file:
        return [json.loads(line) for line in file]


def test_a_letter_is_a_line_of_json(tmp_path):
    """Each letter is appended to the rank's own file, made at the first."""
    letters = DeadLetters(tmp_path / "new" / "dead")
    assert not (tmp_path / "new").exists()

    assert letters.write(3, {"batch_id": 7, "norm": math.nan, "loss": 1.5})
    assert letters.write(3, {"batch_id": None, "norm": math.inf, "loss": -0.5})

    assert letters.path(3) == str(tmp_path / "new" / "dead" / "rank-00003.jsonl")
    assert lines(letters.path(3)) == [
        {"batch_id": 7, "norm": "nan", "loss": 1.5},
        {"batch_id": None, "norm": "inf", "loss": -0.5},
    ]


def test_restarts_append(tmp_path):
    """What an earlier attempt wrote stays."""
    for attempt in range(2):
        DeadLetters(tmp_path).write(0, {"attempt": attempt})

    assert [each["attempt"] for each in lines(tmp_path / "rank-00000.jsonl")] == [0, 1]


@pytest.mark.parametrize(
    ("batch_id", "told"),
    [
        pytest.param(
            {"epoch": 1, "ids": [2, 3]}, {"epoch": 1, "ids": [2, 3]}, id="as is"
        ),
        pytest.param(Array([1, 2]), [1, 2], id="an array"),
        pytest.param(Array([math.nan]), "[nan]", id="what JSON does not know"),
        pytest.param({1, 2}, "{1, 2}", id="no JSON"),
        pytest.param(b"\xff", r"b'\xff'", id="bytes"),
        pytest.param(Unspeakable(), "<Unspeakable>", id="not even a repr"),
        pytest.param("\udce9", "\udce9", id="half a character"),
    ],
)
def test_any_batch_id_can_be_written(tmp_path, batch_id, told):
    """Whatever names a batch, the letter says something of it."""
    letters = DeadLetters(tmp_path)

    assert letters.write(0, {"batch_id": batch_id})
    assert lines(letters.path(0)) == [{"batch_id": told}]


def test_a_batch_id_is_cut():
    """A batch of a million ids costs no more than one of a thousand."""
    nested: list = []
    current = nested
    for _ in range(100_000):
        current.append([])
        current = current[0]

    for endless in (list(range(10**6)), "x" * 10**6, nested):
        told = presentable(endless)
        assert len(json.dumps(told)) <= BATCH_ID_MAX_BYTES


def test_a_full_file_costs_letters_and_one_warning(tmp_path, caplog):
    """The size is bounded; the letters before stay whole."""
    letters = DeadLetters(tmp_path, max_bytes=40)

    written = [letters.write(0, {"number": number}) for number in range(5)]

    assert written == [True, True, False, False, False]
    assert [each["number"] for each in lines(letters.path(0))] == [0, 1]
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "it has reached 40 bytes" in caplog.text


@pytest.mark.parametrize("kind", ["link", "pipe", "directory", "root is a file"])
def test_what_is_no_file_of_ours_is_left_alone(tmp_path, caplog, kind):
    """A link is not followed, a pipe not waited for; training goes on."""
    place, target = tmp_path / "rank-00000.jsonl", tmp_path / "target"
    folder = tmp_path
    if kind == "link":
        place.symlink_to(target)
    elif kind == "pipe":
        os.mkfifo(place)
    elif kind == "directory":
        place.mkdir()
    else:
        folder = tmp_path / "file"
        folder.touch()

    assert DeadLetters(folder).write(0, {"number": 1}) is False

    assert not target.exists()
    assert "cannot write a dead letter to" in caplog.text
    assert "training goes on" in caplog.text


def test_half_a_letter_is_taken_back(tmp_path):
    """A disk that is full in the middle of a line leaves only whole lines."""
    script = f"""
import logging, resource, signal
from dsup_runtime.numerics.dead_letters import DeadLetters
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
letters = DeadLetters({str(tmp_path)!r})
assert letters.write(0, {{"number": 0}})
resource.setrlimit(resource.RLIMIT_FSIZE, (20, {resource.RLIM_INFINITY}))
assert not letters.write(0, {{"number": 1}})
resource.setrlimit(resource.RLIMIT_FSIZE, ({resource.RLIM_INFINITY},) * 2)
assert letters.write(0, {{"number": 2}})
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=600)

    told = [each["number"] for each in lines(tmp_path / "rank-00000.jsonl")]
    assert told == [0, 2]
