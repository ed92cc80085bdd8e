"""Flight recorders asked at a capture: by a FIFO, for files that anybody may write."""

import ctypes
import json
import os
import pickle
import select
import signal
import time

import pytest

from dsup.edges import capture
from dsup.facts.flight_recorder import DUMP_MAX_BYTES, decode, of_dump
from dsup.linux.recorder_pipe import Asked, Recorder, recorders

LIMIT_S = 600.0
MNT_DETACH = 2
TRACE = {
    "version": "2.10",
    "entries": [
        {
            "pg_id": 0,
            "process_group": ("0", "default_pg"),
            "collective_seq_id": 9,
            "profiling_name": "nccl:all_reduce",
            "state": "scheduled",
        }
    ],
}


class Scene:
    """Recorders in a directory, each played by a child of this process."""

    def __init__(self, directory):
        self.directory = directory
        self.children = []

    def place(self, rank):
        """Return a rank's recorder."""
        pipe, dump = self.directory / f"pipe_{rank}", self.directory / f"dump_{rank}"
        return Recorder(rank, str(pipe), str(dump))

    def serve(self, rank, *steps):
        """Have a child wait for the question, and then write these, one by one."""
        one = self.place(rank)
        os.mkfifo(one.pipe)
        pipe = os.open(one.pipe, os.O_RDONLY | os.O_NONBLOCK)
        keep = os.open(one.pipe, os.O_WRONLY)
        pid = os.fork()
        if pid == 0:
            os.set_blocking(pipe, True)
            os.read(pipe, 128)
            fd = os.open(one.dump, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            for step in steps:
                os.write(fd, step)
            os._exit(0)
        os.close(pipe)
        self.children.append((pid, keep))
        return one

    def ask(self, *ones, within_s=LIMIT_S, deaf=()):
        """Ask them; return the trace of each that gives one."""
        found = {}

        def whole(rank, raw):
            trace = of_dump(raw, rank)
            found.update({rank: trace} if trace else {})
            return trace is not None

        until_s = time.monotonic() + within_s
        Asked(ones).dumps(deaf, until_s, DUMP_MAX_BYTES, whole)
        return found

    def clean_up(self):
        """End the children."""
        for pid, keep in self.children:
            os.close(keep)
            os.kill(pid, 9)
            os.waitpid(pid, 0)


@pytest.fixture
def scene(tmp_path):
    """Give a directory of recorders."""
    made = Scene(tmp_path)
    yield made
    made.clean_up()


def test_whoever_is_asked_answers(scene):
    """Each with its own trace, as soon as it is whole."""
    raw = pickle.dumps(TRACE, 2)
    ones = [scene.serve(0, raw), scene.serve(1, raw[:100], raw[100:])]

    found = scene.ask(*ones)

    assert [found[rank].groups["0"].enqueued for rank in (0, 1)] == [9, 9]


def test_what_lay_there_before_is_no_answer(scene):
    """A dump of an earlier capture shows another moment."""
    one = scene.serve(0)
    (scene.directory / "dump_0").write_bytes(pickle.dumps(TRACE, 2))
    os.kill(scene.children[0][0], 9)  # it has the FIFO open, and does not answer

    assert scene.ask(one, within_s=0.2) == {}


@pytest.mark.parametrize("kind", ["nothing", "no reader", "file", "link", "device"])
def test_only_a_fifo_with_a_reader_is_written_to(scene, kind):
    """Whatever else lies there stays as it was."""
    one, target = scene.place(0), scene.directory / "target"
    target.write_bytes(b"mine")
    if kind == "no reader":
        os.mkfifo(one.pipe)
    elif kind == "file":
        os.link(target, one.pipe)
    elif kind in {"link", "device"}:
        os.symlink(target if kind == "link" else "/dev/null", one.pipe)

    assert scene.ask(one) == {}
    assert target.read_bytes() == b"mine"


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(b"cposix\nsystem\n(S'true'\ntR.", id="a program"),
        pytest.param(pickle.dumps(TRACE, 2)[:-9] + b".", id="cut"),
        pytest.param(b'{"entries": }', id="broken JSON"),
    ],
)
def test_garbage_is_no_trace(scene, raw):
    """It is waited for until the time is up, and left."""
    assert scene.ask(scene.serve(0, raw), within_s=0.3) == {}


@pytest.mark.parametrize("kind", ["link", "fifo", "large"])
def test_no_other_file_is_read_for_a_dump(scene, kind):
    """A link leads elsewhere, a FIFO blocks, and a huge file costs memory."""
    one = scene.serve(0)
    dump = scene.directory / "dump_0"
    if kind == "link":
        dump.symlink_to("/proc/self/status")
    elif kind == "fifo":
        os.mkfifo(dump)
    else:
        dump.touch()
        os.truncate(dump, DUMP_MAX_BYTES + 1)

    assert scene.ask(one, within_s=0.2) == {}


def test_who_cannot_run_is_not_waited_for(scene):
    """A frozen rank has its FIFO open and never answers."""
    one = scene.serve(0)
    os.kill(scene.children[0][0], 19)

    assert scene.ask(one, deaf=(0,)) == {}


def test_a_capture_keeps_the_traces(scene):
    """Beside the stacks, for the judge, and as text for people."""
    one = scene.serve(0, json.dumps(TRACE).encode())
    out = os.memfd_create("captures")
    target = capture.Target(0, os.getpid(), -1)
    until_s = time.monotonic() + LIMIT_S
    order = capture.Order((target,), (), 5, out, 0, until_s, False, "", (one,))
    pid = os.fork()
    if pid == 0:
        answer = capture.work(order)
        (scene.directory / "answer").write_bytes(answer)
        os._exit(0)
    os.waitpid(pid, 0)

    found = capture.decode((scene.directory / "answer").read_bytes())
    start, length = found.traces
    (trace,) = decode(os.pread(out, length, start))
    assert trace.groups["0"].enqueued == 9
    ((_, at, size),) = found.texts
    assert b"group 0 (default_pg): #9 called, #8 finished" in os.pread(out, size, at)
    os.close(out)


@pytest.fixture
def silent(tmp_path):
    """Give a directory whose file system has stopped to answer: a FUSE of nobody's."""
    where = tmp_path / "silent"
    where.mkdir()
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        fd = os.open("/dev/fuse", os.O_RDWR)
    except OSError as error:
        pytest.skip(f"cannot open /dev/fuse: {error.strerror}")
    options = f"fd={fd},rootmode=40000,user_id=0,group_id=0".encode()
    if libc.mount(b"silent", bytes(where), b"fuse", 0, options):
        pytest.skip(f"cannot mount: {os.strerror(ctypes.get_errno())}")
    yield where
    libc.umount2(bytes(where), MNT_DETACH)
    os.close(fd)


@pytest.mark.root
def test_a_place_that_does_not_answer_costs_no_stacks(scene, silent):
    """Whoever looks there is left behind, and may never end."""
    one = scene.serve(0)._replace(dump=str(silent / "dump_0"))
    out = os.memfd_create("captures")
    target = capture.Target(0, os.getpid(), -1)
    until_s = time.monotonic() + 2
    order = capture.Order((target,), (), 5, out, 0, until_s, False, "", (one,))
    answer, to_answer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(to_answer, capture.work(order))
        os._exit(0)
    os.close(to_answer)

    assert select.select([answer], [], [], LIMIT_S)[0]
    found = capture.decode(os.read(answer, 65_536))
    assert [rank for rank, _, _ in found.texts] == [0]
    assert found.traces[1] == 0
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    os.close(answer)
    os.close(out)


def test_where_recorders_are_is_in_the_environment():
    """A user's own variables, the old name too; without a pipe there is none."""
    ours = {
        "RANK": "3",
        "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": "/run/p_",
        "TORCH_FR_DUMP_TEMP_FILE": "/run/d_",
    }
    old = {**ours, "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": "/run/old_"}
    del old["TORCH_FR_DUMP_TEMP_FILE"]
    none = {**ours, "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": ""}

    assert list(recorders({0: ours, 1: old, 2: none, 3: ours}, {0, 1, 2})) == [
        Recorder(0, "/run/p_3.pipe", "/run/d_3"),
        Recorder(1, "/run/p_3.pipe", "/run/old_3"),
    ]
