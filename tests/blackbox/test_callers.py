"""What a caller hands over: directories, descriptors, variables, a script on stdin."""

import os
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.dsup_only]
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="makes namespaces")

LEAKS = """
import os, sys
for _ in range(170):
    os.set_inheritable(os.open("/", os.O_RDONLY), True)
os.execvp(sys.argv[1], sys.argv[1:])
"""
NAMELESS = """
import ctypes, os, sys
words = lambda strings: (ctypes.c_char_p * (len(strings) + 1))(*strings, None)
argv = words([os.fsencode(word) for word in sys.argv[1:]])
environment = words([b"=value"] + [k + b"=" + v for k, v in os.environb.items()])
ctypes.CDLL(None).execve(argv[0], argv, environment)
"""


def refused_in_one_line(run):
    """Return the one line of a call that was refused with 2; fail if it was not."""
    assert run.ended() == 2, run.console()
    assert not run.events("started")
    (line,) = run.console().splitlines()
    assert line.startswith("dsup: cannot ")
    return line


def test_a_working_directory_that_was_removed(run):
    """It is said before anything is started in it."""
    gone = run.files / "gone"
    gone.mkdir()
    leave = f'cd {gone} && rmdir {gone} && exec "$@"'
    run.start("--nproc 2", "*:emit=started", wrap=["sh", "-c", leave, "sh"])

    assert "the working directory does not exist any more" in refused_in_one_line(run)


@pytest.mark.root
@needs_root
def test_proc_of_another_pid_namespace(run):
    """Nothing could be found there, so nothing is started."""
    run.start("--nproc 2", "*:emit=started", wrap=["unshare", "--pid", "--fork"])

    assert "/proc shows another pid namespace" in refused_in_one_line(run)


def test_descriptors_that_a_caller_leaks_do_not_count(run):
    """They are closed first, so what is asked for beforehand is enough."""
    run.start(
        "--nproc 20",
        "*:fds,emit=done",
        wrap=["prlimit", "--nofile=256", sys.executable, "-c", LEAKS],
    )

    assert run.ended() == 0, run.console()
    assert len(run.events("done")) == 20
    assert {max(event.fds) for event in run.events("fds")} <= {5}


@pytest.mark.parametrize("length", [55, 56, 65])
def test_a_long_temporary_directory(run, length):
    """A library's socket below TMPDIR has room; compiled code stays with the user."""
    parent = run.tmp / ("t" * (length - len(str(run.tmp)) - 1))
    parent.mkdir()
    run.start("", "*:env", env={"TMPDIR": str(parent)})

    assert run.ended() == 0, run.console()
    (event,) = run.events("env")
    used = Path(event.env["TMPDIR"])
    assert used.parent == (parent if length <= 55 else Path("/tmp"))  # noqa: S108
    assert not used.exists()
    assert Path(event.env["TORCHINDUCTOR_CACHE_DIR"]).parent == parent


def test_an_environment_entry_without_a_name(run):
    """The kernel allows it, and it is no reason not to start."""
    run.start("--nproc 2", "*:emit=done", wrap=[sys.executable, "-c", NAMELESS])

    assert run.ended() == 0, run.console()
    assert len(run.events("done")) == 2


def test_a_script_on_standard_input(run):
    """``dsup launch - < script`` runs it, as ``python - < script`` does."""
    script = run.files / "script.py"
    script.write_text("import sys; print(sys.argv, flush=True); sys.exit(4)")
    with script.open() as stdin:
        run.start("--max-restarts 0", "one", script="-", stdin=stdin)

    assert run.ended() == 4, run.console()
    assert "['-', 'one']\n" in run.console()


def test_a_checkpoint_directory_that_is_none(run):
    """Trying again would not make a directory of a file."""
    file = run.files / "file"
    file.write_text("no directory")
    run.start(f"--nproc 2 --checkpoint-dir {file}", "*:emit=started")

    assert run.ended() == 2, run.console()
    assert not run.events("started")
    (line, *_) = run.said()
    assert line.startswith(
        f"dsup: cannot look for checkpoints in {file}, because not a directory ("
    )


def test_a_checkpoint_directory_that_becomes_a_file_is_a_failure(run):
    """Later it may be the storage's fault: 2 is for a call that was wrong."""
    root = run.files / "ckpt"
    root.mkdir()
    run.start(
        f"--nproc 2 --max-restarts 1 --checkpoint-dir {root}",
        "1@0:emit=ready,wait=go,die=KILL",
        "*@0:emit=ready,hang",
        "*:emit=again",
    )
    run.wait_event("ready", 2)
    root.rmdir()
    root.touch()
    run.emit("go")

    assert run.ended() == 195, run.console()
    assert not run.events("again")
