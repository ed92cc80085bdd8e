"""py-spy, as a program that may be there, may refuse, and may never answer."""

import json
import os
import subprocess
import sys

import pytest

from dsup.linux import spy

REAL = spy.find(os.environ.get("PATH", ""))
LIMIT_S = 600.0


@pytest.fixture
def program(tmp_path):
    """Give ``program(text)``: a program called py-spy that a shell runs."""

    def write(text):
        path = tmp_path / "py-spy"
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        return str(path)

    return write


def test_it_is_looked_for_beside_the_interpreter_and_in_path(program, tmp_path):
    """A virtual environment's need not be in PATH."""
    path = program("exit 0")

    assert spy.find(f"/nowhere:{tmp_path}", "/nowhere/python") == path
    assert spy.find("", "/nowhere/python") == ""
    assert spy.find("", str(tmp_path / "python")) == path


def test_what_it_prints_is_returned_as_it_is(program):
    """Reading it is somebody else's work."""
    assert spy.dump(program('echo "$@"'), 7, LIMIT_S) == (
        b"dump --json --nonblocking --pid 7\n",
        "",
    )


def test_native_frames_are_asked_for_by_themselves(program):
    """py-spy has to stop the process for them."""
    dump, _ = spy.dump(program('echo "$@"'), 7, LIMIT_S, native=True)

    assert dump == b"dump --json --native --pid 7\n"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        pytest.param("echo 'Error: no rights' >&2; exit 1", "no rights", id="refuses"),
        pytest.param(
            "printf 'Error:\\n  gone\\n  more\\n' >&2; exit 1",
            "gone",
            id="on two lines",
        ),
        pytest.param("exit 3", "it says nothing", id="says nothing"),
        pytest.param("exec sleep 60", "did not answer in time", id="hangs"),
    ],
)
def test_why_there_is_nothing_is_said(program, text, why):
    """A short reason, for people."""
    limit_s = 0.5 if "sleep" in text else LIMIT_S
    dump, why_not = spy.dump(program(text), 7, limit_s)

    assert dump == b""
    assert why in why_not


def test_what_cannot_be_started_is_said(tmp_path):
    """It was there a moment ago."""
    dump, why_not = spy.dump(str(tmp_path / "gone"), 7, 0.5)

    assert (dump, why_not) == (b"", "py-spy does not start: no such file or directory")


@pytest.mark.skipif(not REAL, reason="py-spy is not installed")
def test_the_real_one_is_understood(asleep):
    """Its options are the ones used here, and it answers in JSON."""
    script = "import time\ndef naps(): time.sleep(600)\nprint(flush=True); naps()"
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE
    ) as child:
        child.stdout.readline()
        asleep(child.pid)

        dump, why_not = spy.dump(REAL, child.pid, LIMIT_S)
        child.kill()

    assert why_not == ""
    assert json.loads(dump)[0]["frames"][-1]["name"] == "<module>"
