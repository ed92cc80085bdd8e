"""What the bootstrap's hooks tell the agent, and that nobody else sees any of it."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys

import pytest

from dsup_runtime import contract


def run(script, environment, fds=()):
    """Run a script to its end; its output is text."""
    return subprocess.run(
        [sys.executable, "-c", script],
        env={"PATH": os.environ["PATH"], **environment},
        pass_fds=fds,
        capture_output=True,
        text=True,
        timeout=15,
        check=False,
    )


def told(script, *, bootstrap="0"):
    """Run a script as a rank; return its result and the notes that it sent."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with ours, theirs:
        environment = {
            "PYTHONPATH": contract.BOOTSTRAP_DIR,
            contract.BOOTSTRAP: bootstrap,
            contract.NOTES: contract.format_notes(theirs.fileno()),
        }
        result = run(script, environment, [theirs.fileno()])
        ours.setblocking(False)
        notes = []
        with contextlib.suppress(BlockingIOError):
            while True:
                notes.append(json.loads(ours.recv(contract.NOTE_MAX_BYTES)))
        return result, notes


RAISES = """
def work():
    try:
        {}["label"]
    except KeyError as error:
        raise ValueError("bad batch 17") from error
work()
"""


def test_an_exception_is_told_with_its_place_and_causes():
    """Type, text, frame, pid and what it was raised from are in the note."""
    _, [note] = told(RAISES)

    assert (note["type"], note["text"]) == ("ValueError", "bad batch 17")
    assert (note["file"], note["line"], note["function"]) == ("<string>", 6, "work")
    assert (note["thread"], note["causes"]) == ("", [["KeyError", "'label'"]])
    assert note["at_ns"] > 0
    assert note["pid"] != os.getpid()


THREAD = """
import threading
def work():
    raise RuntimeError("no data")
thread = threading.Thread(target=work, name="prefetch")
thread.start(); thread.join()
"""


def test_an_exception_in_a_thread_is_told_with_its_name():
    """The process lives on, and that a thread died is known all the same."""
    result, [note] = told(THREAD)

    assert result.returncode == 0
    assert (note["type"], note["thread"]) == ("RuntimeError", "prefetch")


@pytest.mark.parametrize(
    "script",
    [
        pytest.param(RAISES, id="an exception"),
        pytest.param("import sys; sys.exit(3)", id="an exit code"),
        pytest.param("import sys; sys.exit('because')", id="an exit with a text"),
        pytest.param("raise KeyboardInterrupt", id="an interrupt"),
        pytest.param("class E(Exception):\n def __str__(self): 1/0\nraise E", id="str"),
        pytest.param("def f(): f()\nf()", id="no stack left"),
        pytest.param(
            "import sys\nsys.excepthook = lambda *_: print(7)\n1/0",
            id="a hook of its own",
        ),
        pytest.param("import os\nos.environ.clear()\n1/0", id="no environment"),
        pytest.param("import os\nos.closerange(3, 99)\n1/0", id="no descriptor"),
    ],
)
def test_a_user_sees_what_python_alone_would_show(script):
    """Output and exit code are the same to the byte."""
    alone = run(script, {})
    with_dsup, _ = told(script)

    assert with_dsup.stderr == alone.stderr
    assert (with_dsup.stdout, with_dsup.returncode) == (alone.stdout, alone.returncode)


@pytest.mark.parametrize(
    "script",
    [
        pytest.param("import sys; sys.exit(3)", id="an exit"),
        pytest.param("raise KeyboardInterrupt", id="an interrupt"),
        pytest.param("pass", id="success"),
        pytest.param(
            "import os\nfd = int(os.environ['DSUP_NOTES'][3:])\n"
            "os.dup2(os.open('/dev/null', 1), fd)\n1/0",
            id="another file has the number",
        ),
    ],
)
def test_nothing_is_told_of(script):
    """No exception was left uncaught, or there is nobody to tell."""
    assert told(script)[1] == []


def test_a_text_without_end_is_cut():
    """A note stays within its limit, however much an exception says."""
    _, [note] = told("raise ValueError('x' * 10_000_000)")

    assert 1000 < len(note["text"]) < contract.NOTE_MAX_BYTES


def test_a_full_socket_holds_nobody_up():
    """A rank that cannot tell prints its traceback and ends."""
    flood = (
        "import os, socket\n"
        "s = socket.socket(fileno=os.dup(int(os.environ['DSUP_NOTES'][3:])))\n"
        "s.setblocking(False)\n"
        "try:\n while True: s.send(b'{}')\nexcept BlockingIOError: pass\n"
        "raise ValueError('told nobody')"
    )
    result, notes = told(flood)

    assert result.returncode == 1
    assert "ValueError: told nobody" in result.stderr
    assert {} in notes


SEGFAULT = "import ctypes; ctypes.string_at(0)"


@pytest.mark.parametrize(
    ("bootstrap", "printed"),
    [("0", True), ("0:no-faulthandler", False)],
    ids=["armed", "not wanted"],
)
def test_a_crash_prints_where_python_was(bootstrap, printed):
    """With the fault handler stderr has the stack; without it the kernel has a line."""
    result, _ = told(SEGFAULT, bootstrap=bootstrap)

    assert result.returncode == -signal.SIGSEGV
    assert ("Fatal Python error: Segmentation fault" in result.stderr) is printed


@pytest.mark.torch
@pytest.mark.slow
def test_torchs_own_hook_keeps_both_its_prefix_and_the_note():
    """Torch wraps the hook once a group exists; the note still comes."""
    script = (
        "import os, torch.distributed as dist\n"
        "os.environ.update(RANK='0', WORLD_SIZE='1', MASTER_ADDR='127.0.0.1',"
        " MASTER_PORT='0')\n"
        "dist.init_process_group('gloo')\n"
        "raise ValueError('told twice')"
    )
    result, [note] = told(script)

    assert "[rank0]: ValueError: told twice" in result.stderr
    assert note["text"] == "told twice"
