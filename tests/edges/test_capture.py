"""Capturing stacks of real ranks: those that answer, and those that cannot."""

import os
import signal
import socket
import subprocess
import sys
import time

import pytest

from dsup.edges import capture
from dsup.edges.group import STACKS_FD, Start, WorkerGroup
from dsup.facts.captured import CAPTURE_MAX_BYTES
from dsup.facts.stacks import decode_processes
from dsup.linux import spy
from dsup_runtime import contract

SLEEPS = """
import os, time
def rest():
    os.write({fd}, b".")
    time.sleep(600)
rest()
"""
IN_COLLECTIVE = """
import os, time
place = "/torch/distributed/c10d.py"
exec(compile("def barrier(): os.write({fd}, b'.'); time.sleep(600)", place, "exec"))
barrier()
"""
CROWD = """
import os, threading, time
for _ in range(120):
    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
def rest():
    os.write({fd}, b".")
    time.sleep(600)
rest()
"""
NO_HANDLER = "import faulthandler; faulthandler.unregister(39)\n" + SLEEPS
CLOSED = "import os; os.dup2(os.open('own', 66), 5)\n" + SLEEPS
HELPED = """
import os, time
def leads():
    os.write({fd}, b".")
    time.sleep(600)
def helps():
    os.write({fd}, b".")
    time.sleep(600)
leads() if os.fork() else helps()
"""
GARBAGE = (
    "import os; os.write(5, b'\\x1b[2J' * 100_000); os.lseek(5, 1 << 40, 0)\n" + SLEEPS
)
SPY = spy.find(os.environ.get("PATH", ""))
needs_py_spy = pytest.mark.skipif(not SPY, reason="py-spy is not installed")
LIMIT_S = 600


class Scene:
    """Ranks as the agent starts them, and captures of them."""

    def __init__(self, directory):
        self.directory = directory
        self.group = WorkerGroup()
        self.ranks = []
        self.out = os.memfd_create("captures")
        self.end = 0
        self.ready, self.tell = socket.socketpair()

    def start(self, *scripts, behind_shell=False, signs=1, **variables):
        """Start a rank a script; each has given so many signs when this returns."""
        self.tell.set_inheritable(True)
        fd = self.tell.fileno()
        environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": contract.BOOTSTRAP_DIR,
            contract.BOOTSTRAP: str(os.getpid()),
            contract.STACKS: contract.format_stacks(STACKS_FD),
            **variables,
        }
        commands: list[tuple[str, ...]] = [
            (sys.executable, "-c", script.replace("{fd}", str(fd)))
            for script in scripts
        ]
        if behind_shell:
            line = 'cd "$1"; shift; "$@"; true'
            commands = [
                ("/bin/sh", "-c", line, "sh", str(self.directory), *command)
                for command in commands
            ]
        starts = [Start(command, environment) for command in commands]
        self.ranks = list(self.group.spawn(starts, -1))
        self.ready.settimeout(LIMIT_S)
        heard = 0
        while heard < signs * len(scripts):
            heard += len(self.ready.recv(16))

    def take(self, *, final=False, exited=(), program=SPY, within_s=LIMIT_S):
        """Capture all of them; return what was found and the processes."""
        targets = [capture.Target(r.rank, r.pid, r.stacks) for r in self.ranks]
        until_s = time.monotonic() + within_s
        order = capture.Order(
            *(tuple(targets), exited, STACKS_FD, self.out, self.end),
            *(until_s, final, program),
            patience=capture.Patience(LIMIT_S, LIMIT_S, LIMIT_S),
        )
        found = capture.decode(_in_child(order))
        start, length = found.facts
        self.end = os.fstat(self.out).st_size
        taken = decode_processes(os.pread(self.out, length, start))
        return found, taken[0].processes if taken else ()

    def text(self, found, rank=0):
        """Return the text that a capture has kept of a rank."""
        (place,) = ((at, size) for who, at, size in found.texts if who == rank)
        return os.pread(self.out, place[1], place[0]).decode()

    def stop(self, rank, signum):
        """Send a rank a signal and wait until it shows."""
        os.kill(self.ranks[rank].pid, signum)
        os.waitid(os.P_PID, self.ranks[rank].pid, os.WSTOPPED | os.WNOWAIT)

    def clean_up(self):
        """End them all."""
        for rank in self.ranks:
            subprocess.run(["pkill", "-9", "-P", str(rank.pid)], check=False)
            os.kill(rank.pid, signal.SIGKILL)
            os.waitpid(rank.pid, 0)
            for fd in (rank.pidfd, rank.out, rank.err, rank.notes, rank.stacks):
                if fd >= 0:
                    os.close(fd)
        os.close(self.out)
        self.ready.close()
        self.tell.close()


def _in_child(order):
    """Return what an aide would answer."""
    answer, to_answer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(to_answer, capture.work(order))
        finally:
            os._exit(0)
    os.close(to_answer)
    said = b""
    while part := os.read(answer, 65_536):
        said += part
    os.close(answer)
    os.waitpid(pid, 0)
    return said


@pytest.fixture
def scene(tmp_path):
    """Give ranks that are not started yet."""
    made = Scene(tmp_path)
    yield made
    made.clean_up()


def main_of(process):
    """Return the functions of a process's main thread, the innermost first."""
    return [frame.function for frame in process.main]


def test_ranks_write_their_stacks_themselves(scene):
    """Without py-spy, and without the interpreter's lock."""
    scene.start(SLEEPS, SLEEPS)

    found, taken = scene.take(program="")

    assert [main_of(one) for one in taken] == [["rest", "<module>"]] * 2
    assert [one.rank for one in taken] == [0, 1]
    assert "in rest" in scene.text(found, rank=1)


def test_they_do_so_again_and_again(scene):
    """Each capture shows its own moment, from the beginning of the file."""
    scene.start(SLEEPS)

    for _ in range(3):
        _, (taken,) = scene.take(program="")
        assert main_of(taken) == ["rest", "<module>"]


@pytest.mark.parametrize(
    "script",
    [
        pytest.param(NO_HANDLER, id="no handler"),
        pytest.param(CLOSED, id="another file at its number"),
    ],
)
def test_a_rank_that_is_not_proven_to_answer_is_not_asked(scene, script, monkeypatch):
    """It would die of the signal, or write into a file of its own."""
    monkeypatch.chdir(scene.directory)
    scene.start(script)

    _, (taken,) = scene.take(program="")

    assert not taken.threads
    assert taken.missing == "py-spy is not installed"
    assert os.waitid(os.P_PID, taken.pid, os.WEXITED | os.WNOHANG) is None
    own = scene.directory / "own"
    assert not own.exists() or own.read_bytes() == b""


def test_behind_a_shell_the_first_python_is_asked(scene):
    """Many start their script by another one."""
    scene.start(SLEEPS, behind_shell=True)

    _, processes = scene.take(program="")

    assert main_of(processes[0]) == ["rest", "<module>"]
    assert processes[0].pid != scene.ranks[0].pid


@needs_py_spy
def test_a_suspicion_disturbs_nobody(scene):
    """py-spy only reads; before an end the ranks are asked themselves."""
    scene.start(SLEEPS)

    _, (read,) = scene.take()
    assert "rest" in main_of(read)
    assert os.lseek(scene.ranks[0].stacks, 0, os.SEEK_CUR) == 0

    _, (told,) = scene.take(final=True)
    assert "rest" in main_of(told)
    assert os.lseek(scene.ranks[0].stacks, 0, os.SEEK_CUR) > 0


@needs_py_spy
def test_a_frozen_rank_is_read_from_outside(scene):
    """It answers nobody, and is not even asked: it would die of it when it goes on."""
    scene.start(SLEEPS, SLEEPS)
    scene.stop(1, signal.SIGSTOP)

    found, taken = scene.take()

    assert taken[1].state == "T"
    assert main_of(taken[1]) == ["rest", "<module>"]
    assert found.ranks == (1,)
    assert "state T" in scene.text(found, rank=1)


def test_a_frozen_rank_is_named_without_py_spy(scene):
    """Its state says enough."""
    scene.start(SLEEPS, SLEEPS)
    scene.stop(1, signal.SIGSTOP)

    found, taken = scene.take(program="")

    assert found.ranks == (1,)
    assert taken[1].missing


@needs_py_spy
def test_helpers_are_read_before_an_attempt_is_ended(scene):
    """A forked one has its rank's handler and file, and is left alone all the same."""
    scene.start(HELPED, signs=2)

    _, processes = scene.take(final=True)

    ranks = [one for one in processes if not one.helper]
    helpers = [one for one in processes if one.helper]
    assert [main_of(one)[0] for one in ranks] == ["leads"]
    assert [main_of(one)[0] for one in helpers] == ["helps"]


def test_what_a_rank_writes_there_by_itself_is_no_dump(scene):
    """Nor does it move a terminal's cursor, fill memory, or hold anybody up."""
    scene.start(GARBAGE)

    found, (taken,) = scene.take(program="")

    assert main_of(taken) == ["rest", "<module>"]
    assert "\x1b" not in scene.text(found)


def test_ranks_that_have_ended_well_are_missing_where_all_others_wait(scene):
    """Everybody is in a collective, and waits for one that will never come."""
    scene.start(IN_COLLECTIVE, IN_COLLECTIVE)

    found, _ = scene.take(program="", exited=(2,))

    assert (found.ranks, found.op) == ((2,), "barrier")


def test_ranks_that_have_ended_well_are_not_missed_by_who_works_on(scene):
    """At the same line, and in no collective: they may just have more to do."""
    scene.start(SLEEPS, SLEEPS)

    found, _ = scene.take(program="", exited=(2,))

    assert (found.ranks, found.place) == ((), "")


def test_the_main_thread_of_a_crowd_is_written_too(scene):
    """Of more than a hundred, faulthandler leaves out the last: the main one."""
    scene.start(CROWD)

    for _ in range(2):
        _, (taken,) = scene.take(program="")
        assert main_of(taken) == ["rest", "<module>"]
        assert len(taken.threads) > 90


def test_a_capture_has_its_bounds(scene):
    """However much a rank has others write, the rest of them is kept."""
    scene.start(GARBAGE, SLEEPS)

    found, taken = scene.take(program="")

    assert os.fstat(scene.out).st_size <= CAPTURE_MAX_BYTES
    assert [rank for rank, _, _ in found.texts] == [0, 1]
    assert main_of(taken[1]) == ["rest", "<module>"]


def test_no_answer_means_that_nothing_was_found():
    """The aide was given up."""
    assert capture.decode(b"") == capture.Found()


def test_a_rank_that_has_gone_is_survived(scene):
    """It ended between the order and the look."""
    scene.start(SLEEPS, SLEEPS)
    os.kill(scene.ranks[0].pid, signal.SIGKILL)
    os.waitid(os.P_PID, scene.ranks[0].pid, os.WEXITED | os.WNOWAIT)

    _, taken = scene.take(program="")

    assert main_of(taken[1]) == ["rest", "<module>"]
    assert not taken[0].threads
