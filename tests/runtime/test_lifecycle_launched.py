"""What dsup and a run of two ranks say of its end: the same."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import dsup
import dsup_runtime

pytestmark = [pytest.mark.torch, pytest.mark.slow]

SCRIPT = """
import os, signal, threading
import torch, torch.distributed as dist
import dsup_runtime as rt

def kill(signum):
    os.kill(os.getpid(), signum)

def fail():
    raise ValueError("mine")

def insist():
    kill(signal.SIGTERM)
    threading.Event().wait(1.2)
    kill(signal.SIGTERM)

with rt.run() as run:
    dist.init_process_group("gloo")
    for step in range(3):
        rt.beat(step)
        dist.all_reduce(torch.ones(1))
        rt.should_stop(step)
    if rt.info().rank == 1:
        BLOCK
    MEET
"""
MEET = "dist.all_reduce(torch.ones(1))"


@pytest.fixture
def launch(tmp_path):
    """Launch two ranks, the second of which does something: (exit, output, outcome)."""
    packages = [
        str(Path(str(each.__file__)).parents[1]) for each in (dsup, dsup_runtime)
    ]
    clean = {
        k: v for k, v in os.environ.items() if not k.startswith(("DSUP_", "TORCH"))
    }
    env = {**clean, "PYTHONPATH": os.pathsep.join(packages), "HOME": str(tmp_path)}
    script = tmp_path / "train.py"
    command = [
        *(sys.executable, "-m", "dsup", "launch", "--nproc", "2"),
        *("--log-dir", "logs", "--max-restarts", "0", "--shutdown-timeout", "600"),
    ]

    def launch_ranks(block, meet=MEET, settle_s=120):
        script.write_text(SCRIPT.replace("BLOCK", block).replace("MEET", meet))
        done = subprocess.run(
            [*command, "--settle", str(settle_s), str(script)],
            cwd=tmp_path,
            env=env,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        [told] = (tmp_path / "logs").glob("*/attempt_0/outcome.json")
        return done.returncode, done.stderr, json.loads(told.read_text())

    return launch_ranks


@pytest.mark.parametrize(
    ("block", "code"),
    [
        pytest.param("fail()", 1, id="an error"),
        pytest.param("kill(signal.SIGKILL)", 137, id="SIGKILL"),
    ],
)
def test_a_victims_outcome_names_the_rank_that_failed(launch, block, code):
    """The main rank has only lost another, and the page says which."""
    ended, said, outcome = launch(block)

    assert ended == code, said
    assert (outcome["status"], outcome["reason"], outcome["rank"]) == (
        "FAILED",
        "lost another rank",
        1,
    )


@pytest.mark.parametrize(
    ("block", "code", "how"),
    [
        pytest.param("fail()", 1, "ended with exit code 1", id="an error"),
        pytest.param("kill(signal.SIGKILL)", 137, "died of SIGKILL", id="SIGKILL"),
    ],
)
def test_a_rank_that_meets_nobody_goes_with_the_one_that_failed(
    launch, tmp_path, block, code, how
):
    """No step can be agreed any more: neither rank nor dsup waits for the grace."""
    checks = "while True: rt.should_stop(); threading.Event().wait(0.02)"
    ended, said, outcome = launch(block, meet=checks, settle_s=0.2)

    assert ended == code, said
    why = f"cannot go on, because rank 1 {how} (look at the rank it names)"
    assert (outcome["status"], outcome["rank"]) == ("FAILED", 1)
    assert outcome["error"] == f"PeerError: {why}"
    [verdict] = (tmp_path / "logs").glob("*/attempt_0/verdict.json")
    told = json.loads(verdict.read_text())
    assert (told["first_ranks"], told["ended_by_dsup"]) == ([1], [0])


def test_a_rank_that_is_told_to_end_at_once_ends_a_run_that_was_stopped(launch):
    """A second SIGTERM is no failure of the run, though the others lose that rank."""
    ended, said, outcome = launch("insist()")

    assert ended == 143, said
    assert (outcome["status"], outcome["resumable"]) == ("KILLED", True)
    assert (outcome["reason"], outcome["rank"]) == ("lost another rank", 1)


def test_a_stop_after_the_last_check_is_one_for_dsup_and_the_run(launch):
    """Exit code, outcome and dsup's own word are of the same end."""
    ended, said, outcome = launch("kill(signal.SIGTERM)", meet="pass")

    assert ended == 143
    assert "dsup: stopped by rank 1 (SIGTERM), exit code 143" in said
    assert (outcome["status"], outcome["exit_code"], outcome["rank"]) == (
        "KILLED",
        143,
        1,
    )


def test_a_sigterm_after_leave_stops_nobody(launch):
    """The ranks have parted well: dsup is not asked for a stop that cannot be."""
    ended, said, outcome = launch("pass", meet="run.leave(); kill(signal.SIGTERM)")

    assert (ended, outcome["status"]) == (0, "FINISHED"), said
