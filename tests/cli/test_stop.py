"""``dsup stop`` of runs that cannot be stopped; ``blackbox/test_control`` stops one."""

import contextlib
import os
import socket

import pytest

from dsup.cli.stop_choice import run_to_stop
from dsup.linux import file_lock, proc
from dsup_runtime import contract

OLDER = "20991130T012748Z-train-b0b408_gpu-a17"
NEWEST = "20991130T032748Z-train-c0b408_gpu-a17"


@pytest.fixture
def running(failed_run, monkeypatch):
    """Give ``running(name)``: a run directory at whose socket somebody listens."""
    with contextlib.ExitStack() as stack:

        def make(name, parent=None):
            path = failed_run(name)
            if parent is not None:
                path = path.rename(parent / name)
            there = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with contextlib.chdir(path):  # a socket's path is short
                stack.enter_context(there).bind(contract.CONTROL_SOCKET)
            there.listen()
            monkeypatch.setenv("DSUP_RUNS_DIR", str(path.parent))
            return path

        yield make


def test_a_run_that_is_over_says_what_became_of_it(dsup, failed_run, monkeypatch):
    """Nothing is there to be stopped, whether it was named or is the newest."""
    path = failed_run()
    monkeypatch.setenv("DSUP_RUNS_DIR", str(path.parent))
    named, newest = dsup("stop", path.name), dsup("stop")

    became = "the run was given up with exit code 137"
    assert (named.code, newest.code) == (2, 2)
    assert named.err == f"dsup: cannot stop {path.name}, because {became}\n"
    assert newest.err == (
        f"dsup: cannot stop a run, because none of those in {path.parent} runs here "
        f"(the newest is {path.name}: {became})\n"
    )


def test_those_that_still_run_are_named(dsup, failed_run, running):
    """One that is over was meant by nothing; perhaps another one was meant."""
    path = failed_run()
    running(OLDER)
    said = dsup("stop", path.name)

    assert f"(still running: {OLDER})" in said.err


def test_only_a_run_that_goes_on_is_meant(home, failed_run, running):
    """Newer ones that are over do not count; where runs are kept, those elsewhere."""
    failed_run()
    path, place = running(OLDER), home / "mine"
    place.mkdir()
    other = running(NEWEST, place)

    here, there = {"DSUP_RUNS_DIR": str(path.parent)}, {"DSUP_RUNS_DIR": str(place)}
    assert run_to_stop(None, here) == str(path)
    assert run_to_stop("train", here) == str(path)
    assert run_to_stop(None, {"HOME": str(home), **there}) == str(other)
    assert run_to_stop(str(place), here) == str(other)


@pytest.mark.parametrize("words", [(), ("train",)])
def test_of_several_that_go_on_none_is_stopped(dsup, running, words):
    """A guess could end somebody's work; the one that is meant is named."""
    running(OLDER), running(NEWEST)
    said = dsup("stop", *words)

    assert said.code == 2
    assert f"2 run here: {NEWEST}, {OLDER} (name one of them)" in said.err


@pytest.mark.parametrize("command", ["stop", "status", "logs", "stacks", "diagnose"])
def test_an_empty_word_is_no_run(dsup, failed_run, command):
    """It comes of a variable that was not set."""
    failed_run()
    said = dsup(command, "")

    assert said.code == 2
    assert 'cannot tell which run "" is' in said.err


@pytest.mark.parametrize(
    ("agent", "reason"),
    [
        ({"pid": 1 << 30, "start": 1}, "its agent is gone, and so is the run"),
        ({}, "does not listen (kill -INT "),
    ],
)
def test_a_run_without_a_socket_says_what_is_left_of_it(
    dsup, failed_run, agent, reason
):
    """Its agent lives without one, or is gone while somebody holds the journal."""
    own = {"pid": os.getpid(), "start": proc.stat(os.getpid()).start}
    known = {"host": None, "boot_id": proc.boot_id(), "agent": agent or own}
    path = failed_run(known=known)
    journal = path / contract.JOURNAL_FILE
    journal.write_text("".join(journal.read_text().splitlines(keepends=True)[:5]))
    with journal.open() as file:
        file_lock.share(file.fileno())
        said = dsup("stop", path.name)

    assert said.code == 2
    assert f"cannot stop {path.name}, because" in said.err
    assert reason in said.err


@pytest.mark.parametrize(
    ("command", "verb"),
    [("stop", "stop"), ("status", "show the status of"), ("logs", "show logs of")],
)
def test_what_is_no_run_is_refused_in_the_words_of_the_command(
    dsup, home, command, verb
):
    """Nobody asked for a diagnosis."""
    (home / "empty").mkdir()
    said = dsup(command, "empty")

    assert said.err == f"dsup: cannot {verb} empty, because it is empty\n"


@pytest.mark.parametrize(
    ("host", "reason"),
    [
        ("elsewhere", "because it runs on elsewhere, and this is "),
        (None, "there is no such socket"),
    ],
)
def test_a_run_that_cannot_be_reached_says_why(dsup, failed_run, host, reason):
    """It runs on another node, or its socket was removed."""
    path = failed_run(known={"host": host})
    journal = path / contract.JOURNAL_FILE
    lines = journal.read_text().splitlines(keepends=True)
    journal.write_text("".join(lines[:5]))
    with journal.open() as file:
        file_lock.share(file.fileno())
        said = dsup("stop", str(path))

    assert said.code == 2
    assert reason in said.err
