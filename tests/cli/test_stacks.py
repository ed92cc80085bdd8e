"""``dsup stacks``: whose stacks, and what is said where there are none."""

import json
import os
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from dsup.cli.living import refuse_strangers
from dsup.core.errors import SpecError
from dsup.linux import file_lock, proc, spy
from dsup_runtime import contract

SCRIPT = """
import os, time
def busy():
    os.write(1, b".")
    time.sleep(600)
busy()
"""
MOVE = """
import os, sys
os.dup2(int(sys.argv[1]), 5)
os.execv(sys.argv[2], [sys.argv[2], "-c", sys.argv[3]])
"""
SPY = spy.find(os.environ.get("PATH", ""))
needs_py_spy = pytest.mark.skipif(not SPY, reason="py-spy is not installed")
NAME = "20991130T022748Z-train-a0b408_here"


@pytest.fixture
def memories():
    """Give the memory files of ranks."""
    made: list[int] = []
    yield made
    for memory in made:
        os.close(memory)


@pytest.fixture
def ranks(memories):
    """Give two processes that stand for ranks; each writes its stacks if asked."""
    made = []
    for _ in range(2):
        memory = os.memfd_create(contract.STACKS_NAME)
        os.ftruncate(memory, contract.STACKS_MAX_BYTES)
        os.set_inheritable(memory, True)
        made.append(
            subprocess.Popen(
                [sys.executable, "-ISc", MOVE, str(memory), sys.executable, SCRIPT],
                env={
                    contract.STACKS: "fd:5",
                    contract.BOOTSTRAP: "1",
                    "PYTHONPATH": contract.BOOTSTRAP_DIR,
                },
                stdout=subprocess.PIPE,
                pass_fds=(memory,),
            )
        )
        memories.append(memory)
        made[-1].stdout.read(1)
        while proc.stat(made[-1].pid).state != "S":
            os.sched_yield()
    yield made
    for one in made:
        one.kill()
        one.communicate()


def made_s(pid):
    """Return when a process was made, by the agent's clock."""
    asleep_s = time.clock_gettime(time.CLOCK_BOOTTIME) - time.monotonic()
    return proc.stat(pid).start * proc.TICK_S - asleep_s


@pytest.fixture
def live_run(failed_run, ranks):
    """Give ``live_run(**changes)``: the directory of a run whose journal is held."""
    held = []

    def make(at_s=None, boot_id=None, ended=(), pids=None):
        boot_id = boot_id or proc.read_text("/proc/sys/kernel/random/boot_id").strip()
        path = failed_run(NAME, {"boot_id": boot_id, "host": os.uname().nodename})
        journal = path / contract.JOURNAL_FILE
        head = journal.read_text().splitlines()[0]
        lines = [json.loads(head)]
        for rank, one in enumerate(ranks):
            told = {"event": "rank_started", "attempt": 3, "rank": rank}
            pid = one.pid if pids is None else pids[rank]
            began_s = made_s(one.pid) if at_s is None else at_s
            lines.append({**told, "n": rank + 1, "at_s": began_s, "pid": pid})
        for rank in ended:
            over = {"event": "rank_exited", "attempt": 3, "rank": rank, "status": 0}
            more = {"n": 10 + rank, "at_s": 9.0, "late_s": 0.0, "dying": []}
            lines.append({**over, **more})
        journal.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        held.append(journal.open())
        file_lock.share(held[-1].fileno())
        return path

    yield make
    for file in held:
        file.close()


@pytest.fixture
def plain(home):
    """Give ``plain(*words)``: dsup stacks, with no py-spy beside its interpreter."""
    python = home / "python"
    python.symlink_to(sys.executable)

    def call(*words):
        done = subprocess.run(
            [python, "-m", "dsup", "stacks", *words],
            env={"HOME": str(home), "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            check=False,
        )
        return SimpleNamespace(code=done.returncode, out=done.stdout, err=done.stderr)

    return call


@needs_py_spy
def test_every_rank_is_shown(dsup, live_run, ranks):
    """Without an argument, of the newest run."""
    live_run()

    said = dsup("stacks")

    assert (said.code, said.err) == (0, "")
    for rank, one in enumerate(ranks):
        assert f"rank {rank}, pid {one.pid}, state S" in said.out
    assert said.out.count("in busy\n") == 2


@needs_py_spy
def test_one_rank_as_json(dsup, live_run, ranks):
    """For programs: who, in what state, and each frame in its parts."""
    live_run()

    (shown,) = json.loads(dsup("stacks", "--rank", "1", "--json").out)["processes"]

    assert (shown["rank"], shown["pid"]) == (1, ranks[1].pid)
    assert shown["threads"][0]["main"] is True
    assert shown["threads"][0]["frames"][0]["function"] == "busy"


def test_without_py_spy_ranks_tell_it_themselves(plain, live_run):
    """As they do when dsup asks; the run goes on."""
    live_run()

    for _ in range(2):
        said = plain()
        assert said.code == 0, said.err
        assert said.out.count("in busy\n") == 2


def test_a_memory_file_that_is_full_is_begun_anew(plain, live_run, memories):
    """However often somebody looks."""
    live_run()
    os.lseek(memories[0], contract.STACKS_MAX_BYTES - 10, os.SEEK_SET)

    said = plain()

    assert said.out.count("in busy\n") == 2
    assert 0 < os.lseek(memories[0], 0, os.SEEK_CUR) < 10_000


def test_where_nobody_can_tell_it_is_said_what_to_install(plain, live_run, ranks):
    """A frozen rank answers nobody."""
    live_run()
    for one in ranks:
        one.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, one.pid, os.WSTOPPED | os.WNOWAIT)

    said = plain()

    assert said.code == 1
    assert "py-spy is not installed" in said.err
    assert "pip install py-spy" in said.err


def test_native_frames_need_py_spy(plain, live_run):
    """Nothing else can tell them."""
    live_run()

    assert "pip install py-spy" in plain("--native").err


def test_a_rank_that_has_ended_is_not_shown(dsup, live_run):
    """Its number may be another process's by now."""
    live_run(ended=[0])

    said = dsup("stacks", "--rank", "0")

    assert said.code == 2
    assert "rank 0, because it does not run (those that do: 1)" in said.err


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        pytest.param({"ended": [0, 1]}, "has ended", id="all ended"),
        pytest.param({"at_s": 5.0}, "none of its ranks", id="the pids are others'"),
        pytest.param({"pids": [1 << 30] * 2}, "none of its ranks", id="no such pids"),
        pytest.param({"boot_id": "another"}, "was booted since", id="booted since"),
    ],
)
def test_a_run_that_does_not_run_here_is_refused(dsup, live_run, changes, why):
    """Each for its own reason."""
    live_run(**changes)

    said = dsup("stacks")

    assert (said.code, said.out) == (2, "")
    assert why in said.err


def test_a_run_of_another_host_is_refused(dsup, failed_run):
    """Where it runs, is said."""
    failed_run(NAME, {"boot_id": "another", "host": "gpu-a17"})

    assert "because it runs on gpu-a17" in dsup("stacks").err


def test_a_finished_run_is_refused(dsup, failed_run):
    """Nobody holds its journal any more."""
    failed_run()

    said = dsup("stacks")

    assert said.code == 2
    assert "has ended" in said.err


def test_what_is_no_run_is_refused(dsup, home):
    """A script is none."""
    assert "no run directory of dsup's" in dsup("stacks", "train.py").err


def test_another_users_run_is_refused(ranks):
    """It says as whom to run it; root may look at all."""
    pids = {0: ranks[0].pid}

    with pytest.raises(SpecError, match=f"belong to user id {os.getuid()} .run dsup"):
        refuse_strangers("a run", pids, 65534)
    refuse_strangers("a run", pids, os.getuid())
    refuse_strangers("a run", pids, 0)
