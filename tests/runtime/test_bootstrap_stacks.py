"""The bootstrap has a rank tell where it is, and does no harm by it."""

import os
import signal
import subprocess
import sys

import pytest

from dsup_runtime import contract

ARGUMENTS = {
    contract.BOOTSTRAP: f"{os.getpid()}",
    "PYTHONPATH": contract.BOOTSTRAP_DIR,
    "PATH": os.environ["PATH"],
}
CATCHES = """
import os
with open("/proc/self/status") as status:
    words = dict(line.split(":", 1) for line in status)
print(int(words["SigCgt"], 16) >> 38 & 1, flush=True)
"""
OTHER = """
import os, threading
there, event = threading.Event(), threading.Event()
def other():
    there.set()
    event.wait()
thread = threading.Thread(target=other)
thread.start()
there.wait()  # a thread that has started may not have come to its own code yet
"""


@pytest.fixture
def memory_file():
    """Give a memory file as the agent makes it for a rank."""
    fd = os.memfd_create(contract.STACKS_NAME)
    os.ftruncate(fd, contract.STACKS_MAX_BYTES)
    yield fd
    os.close(fd)


def run(script, fd=-1, value=None, **variables):
    """Run a script under the bootstrap; return how it ended and its output."""
    told = contract.format_stacks(fd) if value is None else value
    return subprocess.run(
        [sys.executable, "-c", script],
        env={**ARGUMENTS, contract.STACKS: told, **variables},
        pass_fds=(fd,) if fd >= 0 else (),
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_signal_writes_every_thread(memory_file):
    """Where each is, and nothing else: the program goes on."""
    done = run(
        OTHER + "def here(): os.kill(os.getpid(), 39)\n"
        "here(); event.set(); thread.join(); print('on')\n",
        memory_file,
    )
    written = os.pread(memory_file, os.lseek(memory_file, 0, os.SEEK_CUR), 0)

    assert (done.returncode, done.stdout, done.stderr) == (0, "on\n", "")
    assert b"in other\n" in written
    assert b"in here\n" in written
    assert written.count(b"Current thread") == 1


@pytest.mark.parametrize(
    "value",
    [
        pytest.param("", id="none"),
        pytest.param("fd:", id="no number"),
        pytest.param("fd:x", id="no digits"),
        pytest.param("fd:-1", id="negative"),
        pytest.param("fd:0", id="another file"),
        pytest.param("fd:999", id="closed"),
        pytest.param("/stacks", id="a path"),
    ],
)
def test_a_place_that_is_not_dsups_is_left_alone(value):
    """A variable that came from elsewhere names whatever file there is."""
    done = run(CATCHES, value=value)

    assert (done.stdout, done.stderr) == ("0\n", "")


def test_without_a_fault_handler_there_are_no_stacks(memory_file):
    """Who wants none wants no handler of dsup's at all."""
    done = run(
        CATCHES,
        memory_file,
        **{contract.BOOTSTRAP: f"{os.getpid()}:no-faulthandler"},
    )

    assert done.stdout == "0\n"


def test_a_signal_that_is_ignored_stays_ignored(memory_file):
    """Whoever started this wanted it so."""
    done = subprocess.run(
        ["/usr/bin/env", "--ignore-signal=39", sys.executable, "-c", CATCHES],
        env={**ARGUMENTS, contract.STACKS: contract.format_stacks(memory_file)},
        pass_fds=(memory_file,),
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.stdout == "0\n", done.stderr


def test_programs_that_a_rank_starts_have_neither_handler_nor_file(memory_file):
    """They would hold the file open, or die of the signal."""
    number = contract.format_stacks(memory_file).removeprefix("fd:")
    done = run(
        f"import os, sys\nos.execv('/bin/ls', ['ls', '/proc/self/fd/{number}'])\n",
        memory_file,
    )

    assert done.returncode != 0


def test_a_script_may_take_the_signal_for_itself(memory_file):
    """It is the script's process."""
    done = run(
        "import os, signal\n"
        "signal.signal(39, lambda *_: print('mine', flush=True))\n"
        "os.kill(os.getpid(), 39)\n",
        memory_file,
    )

    assert (done.returncode, done.stdout) == (0, "mine\n")


def test_a_forked_child_is_not_harmed(memory_file):
    """It has the handler; nothing is written unless somebody signals it."""
    done = run(
        "import os\n"
        "pid = os.fork()\n"
        "if not pid: os._exit(7)\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))\n",
        memory_file,
    )

    assert done.stdout == "7\n"
    assert os.lseek(memory_file, 0, os.SEEK_CUR) == 0


def test_another_signal_writes_the_main_thread_alone(memory_file):
    """Where there are many threads, the first one leaves it out."""
    run(
        OTHER + f"def here(): os.kill(os.getpid(), {contract.MAIN_STACK_SIGNAL})\n"
        "here(); event.set(); thread.join()\n",
        memory_file,
    )
    written = os.pread(memory_file, os.lseek(memory_file, 0, os.SEEK_CUR), 0)

    assert b"in here\n" in written
    assert b"in other\n" not in written


def test_the_numbers_are_the_contracts():
    """The bootstrap imports nothing, so it has the numbers once more."""
    numbers = contract.STACKS_SIGNAL, contract.MAIN_STACK_SIGNAL
    assert all(signal.SIGRTMIN < number < signal.SIGRTMAX for number in numbers)
