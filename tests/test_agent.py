"""The agent as a whole, where no rank has run yet: it says what it waits for."""

import os
import select
import signal
import socket
import subprocess
import sys
import time

import pytest


@pytest.fixture
def launch(tmp_path):
    """Start launchers whose stderr is a pipe; none of them outlives the test."""
    (tmp_path / "script.py").write_text("print('started')")
    started = []

    def start(*options, wrap=()):
        words = ["launch", "--log-dir", str(tmp_path / "runs"), *options, "script.py"]
        process = subprocess.Popen(
            [*wrap, sys.executable, "-m", "dsup", *words],
            cwd=tmp_path,
            env=os.environ | {"TMPDIR": str(tmp_path)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def said(process, text):
    """Return whether a launcher says something within a few seconds."""
    seen, end_s = b"", time.monotonic() + 600
    while time.monotonic() < end_s and text not in seen:
        if select.select([process.stderr], [], [], 0.1)[0]:
            part = os.read(process.stderr.fileno(), 65_536)
            if not part:
                return False
            seen += part
    return text in seen


@pytest.fixture
def taken():
    """Listen on a port that the ranks shall have."""
    with socket.create_server(("", 0)) as listener:
        yield listener


def on_port(listener):
    return "--master-port", str(listener.getsockname()[1])


def test_what_keeps_the_first_attempt_from_starting_is_said_at_once(launch, taken):
    """Nobody waits for minutes in front of an empty screen; a stop ends the wait."""
    process = launch(*on_port(taken), "--max-restarts", "1", "--backoff", "600")

    assert said(process, b"cannot use port")
    process.send_signal(signal.SIGTERM)
    assert process.wait(600) == 143


@pytest.mark.slow
def test_an_attempt_starts_after_one_that_could_not(launch, taken):
    """What was in the way has gone: the next attempt runs, though none did before."""
    # Once it is free, others may have the port for a moment.
    process = launch(*on_port(taken), "--max-restarts", "60", "--backoff", "1")

    assert said(process, b"cannot use port")
    taken.close()
    assert process.wait(600) == 0
    assert b"started" in process.stdout.read()


@pytest.mark.parametrize("limit", [16, 64, 307])
def test_too_few_descriptors_are_refused_beforehand(launch, limit):
    """In the middle of a run nothing could be done about it any more."""
    wrap = ["prlimit", f"--nofile={limit}"]
    _, stderr = (process := launch("--nproc", "30", wrap=wrap)).communicate(timeout=600)

    assert process.returncode == 2
    assert stderr.decode() == (
        f"dsup: cannot supervise 30 ranks, because only {limit} descriptors may be "
        "open (raise ulimit -n to 308)\n"
    )


def test_a_low_soft_limit_is_raised(launch):
    """What an ordinary process may raise for itself needs no user."""
    process = launch("--nproc", "10", wrap=["prlimit", "--nofile=64:4096"])
    stdout, _ = process.communicate(timeout=600)

    assert process.returncode == 0
    assert stdout.count(b"started") == 10


def test_descriptors_that_are_just_enough_are_enough(launch):
    """The number that is asked for will do."""
    process = launch("--nproc", "10", wrap=["prlimit", "--nofile=188"])
    stdout, _ = process.communicate(timeout=600)

    assert process.returncode == 0
    assert stdout.count(b"started") == 10
