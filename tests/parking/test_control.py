"""A run that is asked how it stands, again and again, and then to stop; as users do."""

import json
import os
import shutil
import socket
import struct
import subprocess
import sys

import pytest

from dsup import control_client

REQUESTS = 300


@pytest.fixture
def dsup(run):
    """Give ``dsup(*words)``: another command of dsup's, about this run."""

    def call(*words):
        return subprocess.run(
            [sys.executable, "-m", "dsup", *words],
            env=run.environ({"DSUP_RUNS_DIR": str(run.logs)}),
            capture_output=True,
            text=True,
            check=False,
        )

    return call


@pytest.fixture
def training(run, parked):
    """Start two ranks that step until they are asked to stop."""
    parked.start(run, "--nproc 2 --shutdown-timeout 600", "-", worker="should_stop.py")
    run.wait_event("ready", 2)
    return run


def agent_of(path):
    """Return the pid of who listens at a socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as one:
        one.connect(path)
        told = one.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        return struct.unpack("=iii", told)[0]


@pytest.mark.slow
def test_questions_cost_a_run_nothing(training, dsup, proc):
    """Hundreds of them: the steps go on, and no descriptor stays open."""
    path = str(training.run_dir() / "control.sock")
    agent = agent_of(path)
    first = last = control_client.ask(path, {"ask": "status"})
    held = len(os.listdir(f"/proc/{agent}/fd"))
    for _ in range(REQUESTS):
        last = control_client.ask(path, {"ask": "status"})
    after = len(os.listdir(f"/proc/{agent}/fd"))
    ranks = {event.rank: event.pid for event in training.events("ready")}

    assert after <= held + 2
    assert (first["live"], first["stage"], first["alive"]) == (True, "running", 2)
    assert {row["rank"]: row["pid"] for row in last["ranks"]} == ranks
    ask = {"ask": "status"}
    proc.until(
        lambda: control_client.ask(path, ask)["step"] > first["step"], 120, "no step"
    )
    assert {row["phase"] for row in last["ranks"]} == {"train"}
    assert json.loads(dsup("runs", "--json").stdout)["runs"][0]["outcome"] == "running"


@pytest.mark.slow
def test_a_run_that_is_asked_to_stop_says_by_whom(training, dsup, parked):
    """All ranks leave at one check, nobody is signalled, and the code is 130."""
    said = dsup("stop", training.run_dir().name)

    assert training.ended() == 130, training.console()
    assert said.returncode == 0, said.stderr
    assert f"{training.run_dir().name}: the run was stopped by dsup stop" in said.stdout
    told = parked.left_together(training, 2)
    assert (told.kind, told.of, told.reason) == ("user", -1, "dsup stop")
    (asked,) = parked.journal(training, "signalled")
    assert (asked["signum"], asked["sender_uid"]) == (2, os.geteuid())
    who = f"dsup stop (uid {os.geteuid()}, pid {asked['sender_pid']})"
    lines = training.said()
    assert any(
        line.startswith(f"dsup: stop asked by {who}: stopping at") for line in lines
    )
    assert lines[-1].startswith(f"dsup: stopped by {who}, exit code 130")
    found = json.loads(dsup("status", "--json").stdout)
    assert (found["live"], found["outcome"]) == (False, "stopped")
    assert found["exit"] == {"code": 130, "origin": "dsup"}
    training.nothing_left()


@pytest.mark.slow
def test_now_kills_ranks_that_hear_nothing(run, parked, dsup):
    """Whatever they do meanwhile; the run is over, and stopped by hand."""
    parked.start(run, "--nproc 1", "*:plain,step=0.05")
    run.wait_event("ready", 1)
    said = dsup("stop", "--now")

    assert run.ended() == 130, run.console()
    assert "exit code 130" in said.stdout
    assert any("killing what is left" in line for line in run.said())


@pytest.mark.slow
def test_a_directory_that_is_deleted_does_not_end_its_run(run, dsup):
    """It cannot be asked any more, which is said; the training goes on to its end."""
    run.start("--nproc 1", "*:emit=ready,wait=go")
    run.wait_event("ready", 1)
    path = run.run_dir()
    while path.exists():  # its files are still written, and replaced
        shutil.rmtree(path, ignore_errors=True)
    said = dsup("stop", str(path))
    run.emit("go")

    assert said.returncode == 2
    assert "there is no such file or directory" in said.stderr
    assert run.ended() == 0, run.console()
