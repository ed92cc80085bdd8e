"""``info()`` and the package itself: who this worker is, at next to no cost."""

import json

import pytest

TELL = "import json, dsup_runtime; print(json.dumps(dsup_runtime.info()._asdict()))"
ALONE = {
    "rank": 0,
    "world_size": 1,
    "local_rank": 0,
    "is_main": True,
    "run_id": None,
    "attempt": 0,
    "supervised": False,
    "grace_s": 25.0,
    "comm_timeout_s": None,
    "resume_from": None,
}


def test_without_a_launcher_a_worker_is_rank_0_of_1(run):
    """A script that is run by plain ``python`` is alone, and nothing is required."""
    status, told, _ = run(TELL)

    assert (status, json.loads(told)) == (0, ALONE)


@pytest.mark.parametrize(
    ("variables", "facts"),
    [
        pytest.param(
            {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1"},
            {"rank": 5, "world_size": 8, "local_rank": 1, "is_main": False},
            id="a rank of a world",
        ),
        pytest.param({"TORCHELASTIC_RUN_ID": "j7"}, {"run_id": "j7"}, id="run id"),
        pytest.param(
            {"TORCHELASTIC_RESTART_COUNT": "2"}, {"attempt": 2}, id="torchrun's attempt"
        ),
        pytest.param(
            {"TORCHELASTIC_RESTART_COUNT": "2", "DSUP_ATTEMPT": "3"},
            {"attempt": 3},
            id="dsup's attempt goes first",
        ),
        pytest.param(
            {"DSUP_RESUME_FROM": "/c/step_9"},
            {"resume_from": "/c/step_9"},
            id="a checkpoint to resume from",
        ),
        pytest.param(
            {"DSUP_RESUME_FROM": ""}, {"resume_from": None}, id="no checkpoint yet"
        ),
        pytest.param({"DSUP_GRACE_S": "12.5"}, {"grace_s": 12.5}, id="grace"),
        pytest.param({"DSUP_GRACE_S": "0"}, {"grace_s": 0.0}, id="no grace at all"),
        pytest.param(
            {"DSUP_COMM_TIMEOUT_S": "300"},
            {"comm_timeout_s": 300.0},
            id="time-out of the group",
        ),
    ],
)
def test_a_launcher_says_who_a_worker_is(run, variables, facts):
    """Each fact comes from its variable; the others keep their defaults."""
    _, told, _ = run(TELL, env=variables)

    assert json.loads(told) == ALONE | facts


def test_a_worker_with_a_slot_is_supervised(run, page):
    """Supervised means: dsup has given this very process a slot."""
    _, told, _ = run(TELL, page=page)

    assert json.loads(told)["supervised"] is True


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        pytest.param("RANK", "x", "'x' is not a number", id="a word"),
        pytest.param("WORLD_SIZE", "1.5", "'1.5' is not a number", id="a fraction"),
        pytest.param("LOCAL_RANK", "-1", "'-1' is below 0", id="a negative rank"),
        pytest.param("RANK", "5", "'5' is no rank where WORLD_SIZE is 1", id="no rank"),
        pytest.param("DSUP_COMM_TIMEOUT_S", "1e10", "is not a length", id="too long"),
        pytest.param("DSUP_ATTEMPT", "9" * 5000, "is not a number", id="5000 digits"),
        pytest.param("DSUP_GRACE_S", "soon", "'soon' is not a number", id="no time"),
        pytest.param("DSUP_GRACE_S", "nan", "is not a length of time", id="nan"),
        pytest.param(
            "DSUP_COMM_TIMEOUT_S", "-3", "is not a length of time", id="a negative time"
        ),
    ],
)
def test_garbage_is_refused_by_name(run, name, value, why):
    """A variable that holds nonsense is named, with what it holds, shortened."""
    status, _, error = run(TELL, env={name: value})

    last = error.splitlines()[-1]
    assert status == 1
    assert "WorkerEnvironmentError: cannot read " + name + ", because" in last
    assert why in last
    assert len(last) < 250


def test_import_has_no_effect(run):
    """The import starts no thread, opens no file and brings no other module."""
    script = """
import os, sys
def state():
    return set(sys.modules), os.listdir("/proc/self/fd"), os.listdir("/proc/self/task")
before = state()
import dsup_runtime
after = state()
assert after[0] - before[0] == {"dsup_runtime"}, after[0] - before[0]
assert after[1:] == before[1:]
"""
    status, _, error = run(script)

    assert (status, error) == (0, "")


def test_every_public_name_is_found_and_torch_is_not_needed(run):
    """All names of ``__all__`` resolve, by attribute and by import; torch stays out."""
    script = """
import sys, dsup_runtime
assert set(dsup_runtime.__all__) <= set(dir(dsup_runtime))
from dsup_runtime import *
for name in dsup_runtime.__all__:
    assert callable(getattr(dsup_runtime, name)) or name == "errors", name
    assert globals()[name] is getattr(dsup_runtime, name), name
assert not hasattr(dsup_runtime, "beet")
assert "torch" not in sys.modules
"""
    status, _, error = run(script)

    assert (status, error) == (0, "")


def test_no_module_takes_the_place_of_a_public_name(run):
    """Importing whatever else the runtime has leaves every name what it is."""
    script = """
import importlib, pkgutil, dsup_runtime
skipped = "dsup_runtime.bootstrap"
for found in pkgutil.walk_packages(dsup_runtime.__path__, "dsup_runtime."):
    if not found.name.startswith(skipped):
        importlib.import_module(found.name)
for name in set(dsup_runtime.__all__) - {"errors"}:
    assert callable(getattr(dsup_runtime, name)), name
"""
    status, _, error = run(script)

    assert (status, error) == (0, "")
