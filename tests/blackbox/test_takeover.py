"""A launch after dsup's agent was killed: what it finds, says and counts."""

import os
import signal

import pytest

pytestmark = [pytest.mark.dsup_only, pytest.mark.slow]

PAUSE = "*:emit=ready,wait=go,exit=3"
BEFORE = "dsup: the run before, "
NOBODY_S = {"SLURM_JOB_ID": "", "KUBERNETES_SERVICE_HOST": ""}


@pytest.fixture
def again(new_run):
    """Give ``again(env)``: a launch of one job, all of whose runs are kept together."""
    runs = []

    def launch(env):
        runs.append(new_run())
        runs[-1].logs = runs[0].logs
        runs[-1].start("--nproc 1 --max-restarts 2", PAUSE, env=env, cwd="/")
        runs[-1].wait_event("ready")
        return runs[-1]

    return launch


def told(run):
    """Return what was said of the run before."""
    return [line for line in run.said() if line.startswith(BEFORE)]


def directory_of(run, proc):
    """Return the directory of a run, once it says there whose it is."""
    said = proc.until(lambda: [s for s in run.said() if "logs in " in s], 600, "a line")
    path = run.logs / said[0].partition("logs in ")[2].partition(";")[0]
    proc.until((path / "run.json").exists, 600, "no run.json")
    return path


def cut_off(run, proc):
    """Kill the agent of a run; return the run's directory."""
    path = directory_of(run, proc)
    os.kill(proc.children_of(run.process.pid)[0], signal.SIGKILL)
    assert run.ended() == 137, run.console()
    return path


def test_failures_are_counted_across_launches_of_one_parent(again, proc):
    """Two runs of one Slurm job were cut off: --max-restarts 2 allows no third."""
    env = {"SLURM_JOB_ID": "17"}
    first = cut_off(again(env), proc)
    run = again(env)
    proc.until(lambda: told(run), 600, run.console)
    second = cut_off(run, proc)
    run = again(env)
    proc.until(lambda: told(run), 600, run.console)

    assert told(run)[0].removeprefix(BEFORE) == (
        f"{second.name}, ended when its agent was killed (attempt 0); "
        "its 2 failed attempts count on"
    )
    run.emit("go")
    assert run.ended() == 3, run.console()
    assert any("--max-restarts is used up" in line for line in run.said())
    assert len(run.events("ready")) == 1
    for path in (first, second):
        assert (path / "closed.json").exists()
        assert (path / "attempt_0" / "verdict.json").exists()


def test_after_a_launch_by_hand_one_line_says_what_became_of_it(again, proc):
    """It is nobody's to close, and the next launch begins to count anew."""
    first = cut_off(again(NOBODY_S), proc)
    if '"parent": ""' not in (first / "run.json").read_text():
        pytest.skip("the tests themselves run in a systemd unit")
    run = again(NOBODY_S)
    proc.until(lambda: told(run), 600, run.console)

    assert told(run)[0].removeprefix(BEFORE) == (
        f"{first.name}, ended without a word: its agent was killed; "
        f"dsup diagnose {first}"
    )
    assert not (first / "closed.json").exists()
    run.emit("go")
    assert run.ended() == 3, run.console()
    assert len(run.events("ready")) == 3
