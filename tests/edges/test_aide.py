"""Aides: what may block is asked of a child, and its silence is an answer."""

import json
import os
import subprocess
import sys
from textwrap import dedent

import pytest

MEASURED_BY = ("COVERAGE_PROCESS_CONFIG", "COVERAGE_PROCESS_START")
PRELUDE = """
import json, os, resource, select, signal, sys, time
from dsup.edges.aide import ANSWER_MAX_BYTES, Aides
from dsup.edges.loop import Loop

loop, heard = Loop(), []
aides = Aides(loop)

def start(work, limit_s=100):
    aides.start(work, time.monotonic() + limit_s, heard.append)

def turn_until(holds):
    end_s = time.monotonic() + 600
    while not holds():
        loop.turn(min(aides.deadline(), time.monotonic() + 0.05))
        aides.expire(time.monotonic())
        if time.monotonic() > end_s:
            sys.exit("it did not become so")

def fds():
    return len(os.listdir("/proc/self/fd"))

def tell(**facts):
    print(json.dumps(facts))

"""

HANGING = "start(lambda: signal.pause() or b'', limit_s=0.05)\n"


@pytest.fixture
def drive():
    """Run a piece of Python that may fork; return the facts it tells."""

    def run(code, *arguments, wrap=(), poor=False):
        """A poor driver gives up rights that coverage would need to measure it."""
        code = PRELUDE + dedent(code)
        done = subprocess.run(
            [*wrap, sys.executable, "-c", code, *map(str, arguments)],
            capture_output=True,
            check=False,
            env={k: v for k, v in os.environ.items() if k not in MEASURED_BY * poor},
            text=True,
            timeout=600,
        )
        assert (done.returncode, done.stderr) == (0, "")
        return json.loads(done.stdout)

    return run


def test_an_aide_answers(drive):
    """The answer of its work arrives once, and nothing of the aide is left."""
    facts = drive(
        """
        before = fds()
        start(lambda: b"forty-two")
        working = len(aides.pids)
        turn_until(lambda: heard and not aides.pids)
        tell(
            heard=[answer.decode() for answer in heard],
            working=working,
            deadline=aides.deadline() == float("inf"),
            leaked=fds() - before,
        )
        """
    )

    assert facts == {
        "heard": ["forty-two"],
        "working": 1,
        "deadline": True,
        "leaked": 0,
    }


def test_many_aides_work_at_once(drive):
    """Each answer is given to whom it belongs, in the order of arrival."""
    facts = drive(
        """
        gate = os.memfd_create("gate")
        path = f"/proc/{os.getpid()}/fd/{gate}"
        def late():
            while not (said := open(path, "rb").read()):
                os.sched_yield()
            return said
        start(late)
        start(lambda: b"early")
        turn_until(lambda: heard)
        os.write(gate, b"late")
        turn_until(lambda: len(heard) == 2)
        tell(heard=[answer.decode() for answer in heard])
        """
    )

    assert facts == {"heard": ["early", "late"]}


EMPTY = {
    "silence until the deadline": "lambda: signal.pause() or b''",
    "killed at work": "lambda: os.kill(os.getpid(), signal.SIGKILL) or b''",
    "an exception": "lambda: 1 // 0",
    "a call to exit": "lambda: sys.exit(0)",
    "nothing to say": "lambda: b''",
}


@pytest.mark.parametrize("work", EMPTY.values(), ids=EMPTY.keys())
def test_no_answer_is_an_empty_answer(drive, work):
    """However an aide fails, whoever asked hears of it once, and in time."""
    facts = drive(
        f"""
        start({work}, limit_s=0.3)
        turn_until(lambda: heard and not aides.pids)
        tell(heard=[answer.decode() for answer in heard])
        """
    )

    assert facts == {"heard": [""]}


def test_an_aide_that_was_given_up_is_still_an_aide_until_it_has_gone(drive):
    """In state D it may stay for ever: it is not to be taken for a rank's helper."""
    facts = drive(
        """
        def done(_):
            heard.append(pid in aides.pids)

        limit_s = time.monotonic() + 0.05
        aides.start(lambda: signal.pause() or b"", limit_s, done)
        (pid,) = aides.pids
        turn_until(lambda: not aides.pids)
        tell(given_up=heard == [True], collected=not os.path.exists(f"/proc/{pid}"))
        """
    )

    assert facts == {"given_up": True, "collected": True}


DEAD_DISK = """
import ctypes, struct, sys
from dsup.linux import proc, tree
mount = ctypes.CDLL(None, use_errno=True).mount
fuse = os.open("/dev/fuse", os.O_RDWR)
options = f"fd={fuse},rootmode=40000,user_id=0,group_id=0".encode()
where = sys.argv[1]
if mount(b"dead", where.encode(), b"fuse", 0, options):
    raise OSError(ctypes.get_errno(), "mount")
unique = struct.unpack_from("=IIQ", os.read(fuse, 1 << 20))[2]
answer = struct.pack("=IIIIHHIIHHI28x", 7, 31, 0, 0, 0, 0, 4096, 1, 0, 0, 0)
os.write(fuse, struct.pack("=IiQ", 16 + len(answer), 0, unique) + answer)
asked = []
loop.watch(fuse, lambda: asked.append(os.read(fuse, 1 << 20)))  # and never answered
start(lambda: os.listdir(where)[0].encode())
(pid,) = aides.pids
turn_until(lambda: asked)
aides.expire(time.monotonic() + 100)
turn_until(lambda: heard)
turn_until(lambda: proc.stat(pid).state == "D")
stuck = aides.pids == {pid}, tree.alive(aides.pids), aides.deadline() == float("inf")
os.close(fuse)
turn_until(lambda: not aides.pids)
tell(heard=heard == [b""], stuck=stuck)
"""


@pytest.mark.root
def test_an_aide_may_be_stuck_in_the_kernel_for_ever(drive, tmp_path):
    """On a dead disk not even SIGKILL ends it: it is given up, and nothing more."""
    if not os.path.exists("/dev/fuse"):
        pytest.skip("no /dev/fuse here")
    facts = drive(DEAD_DISK, tmp_path, wrap=["unshare", "--mount"])

    assert facts == {"heard": True, "stuck": [True, [], True]}


@pytest.mark.parametrize(
    "size",
    [
        pytest.param("ANSWER_MAX_BYTES", id="the most"),
        pytest.param("ANSWER_MAX_BYTES + 1", id="one byte more"),
        pytest.param("64 << 20", id="huge"),
    ],
)
def test_an_answer_has_a_limit(drive, size):
    """No aide can fill the agent's memory: what is beyond the limit is cut off."""
    facts = drive(
        f"""
        start(lambda: b"x" * ({size}))
        turn_until(lambda: heard and not aides.pids)
        tell(sizes=[len(answer) for answer in heard], limit=ANSWER_MAX_BYTES)
        """
    )

    assert facts == {"sizes": [65536], "limit": 65536}


@pytest.mark.root
def test_an_answer_may_be_larger_than_a_pipe(drive):
    """Past the user's limit of pipe pages a pipe holds 8 KiB; the answer is whole."""
    facts = drive(
        """
        import fcntl
        os.setuid(50_000 + os.getpid() % 10_000)  # root has no such limit
        pipes = []
        while not pipes or fcntl.fcntl(pipes[-1][0], 1032) > 8192:
            pipes.append(os.pipe())
            try:
                fcntl.fcntl(pipes[-1][0], 1031, 1 << 20)
            except PermissionError:
                continue
        start(lambda: b"x" * 50_000)
        turn_until(lambda: heard)
        tell(sizes=[len(answer) for answer in heard])
        """,
        poor=True,
    )

    assert facts == {"sizes": [50_000]}


def test_a_hanging_aide_holds_nothing_open(drive):
    """The ranks' pipes and the console end with their owners, not with the aide."""
    facts = drive(
        """
        out, into_out = os.pipe()
        os.dup2(into_out, 2)
        working, at_work = os.pipe()
        start(lambda: signal.pause() or b"", limit_s=600)
        (pid,) = aides.pids
        def link(number):
            try:
                return os.readlink(f"/proc/{pid}/fd/{number}")
            except FileNotFoundError:
                return "it is being replaced"
        for _ in range(120_000):
            links = set(map(link, (0, 1, 2)))
            left = len(os.listdir(f"/proc/{pid}/fd"))
            if links == {"/dev/null"} and left == 4:
                break
            select.select([], [], [], 0.005)
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 2)
        os.close(into_out)
        ended = select.select([out], [], [], 600)[0] == [out] and os.read(out, 1) == b""
        os.kill(pid, signal.SIGKILL)
        tell(left=left, ended=ended)
        """
    )

    assert facts == {"left": 4, "ended": True}


@pytest.mark.parametrize(
    "limit",
    [
        pytest.param("RLIMIT_NPROC", id="processes", marks=pytest.mark.root),
        pytest.param("RLIMIT_NOFILE", id="descriptors"),
    ],
)
def test_where_no_aide_can_be_made_the_answer_is_empty(drive, limit):
    """At a limit of the system the agent goes on without the answer."""
    facts = drive(
        f"""
        if "{limit}" == "RLIMIT_NPROC":
            os.setuid(50_000 + os.getpid() % 10_000)  # root has no limit of processes
            resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))
        else:
            resource.setrlimit(resource.RLIMIT_NOFILE, (fds() - 1, fds() - 1))
        start(lambda: b"never")
        tell(heard=[answer.decode() for answer in heard], pids=len(aides.pids))
        """,
        poor=True,
    )

    assert facts == {"heard": [""], "pids": 0}


def test_the_end_of_the_run_hurries_all_but_lasting_aides(drive):
    """What nobody else will do, as removing a TMPDIR, keeps the time it was given."""
    facts = drive(
        """
        limit_s = time.monotonic() + 600
        aides.start(lambda: signal.pause(), limit_s, heard.append)
        aides.start(lambda: b"", limit_s + 5, heard.append, lasting=True)
        aides.hurry(limit_s - 9)
        soon = aides.deadline() == limit_s - 9
        aides.expire(limit_s - 8)
        tell(soon=soon, heard=len(heard), lasting=aides.deadline() == limit_s + 5)
        turn_until(lambda: not aides.pids)
        """
    )

    assert facts == {"soon": True, "heard": 1, "lasting": True}


def test_only_those_whose_time_is_up_are_given_up(drive):
    """An aide with time left works on while another one is killed."""
    facts = drive(
        "start(lambda: signal.pause() or b'', limit_s=600)\n"
        + HANGING
        + """
turn_until(lambda: heard and len(aides.pids) == 1)
left_s = aides.deadline() - time.monotonic()
(pid,) = aides.pids
os.kill(pid, signal.SIGKILL)
tell(heard=len(heard), later=left_s > 500)
"""
    )

    assert facts == {"heard": 1, "later": True}


def test_an_aide_that_the_kernel_refuses_is_told_from_a_silent_one(drive):
    """Whoever hears the empty answer can ask why, and nobody after that."""
    facts = drive(
        """
        def hear(answer):
            refusal = aides.refusal
            heard.append([answer.decode(), refusal and refusal.errno])

        def hearing(work):
            aides.start(work, time.monotonic() + 100, hear)

        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        hearing(lambda: b"")
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
        hearing(lambda: b"")
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        turn_until(lambda: len(heard) == 2 and not aides.pids)
        tell(heard=heard)
        """
    )

    assert facts == {"heard": [["", 24], ["", None]]}
