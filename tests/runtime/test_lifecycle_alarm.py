"""Signals at the edges of a run: before its loop, between runs, within its end."""

import json
import os
import signal
import threading
import time

import pytest

BEGIN = """
import json, os, signal, sys, threading, time
import dsup_runtime as rt
from dsup_runtime.adapters import JsonLinesReporter
def kill(signum=signal.SIGTERM):
    os.kill(os.getpid(), signum)
def say(what):
    os.write(1, (json.dumps(what) + "\\n").encode())
def begin(reporter=JsonLinesReporter):
    return rt.run(reporter=reporter(os.environ["REPORT"]))
"""


@pytest.fixture
def launch(start, tmp_path):
    """Start a script that may report its run."""

    def launch_script(code, **env):
        return start(BEGIN + code, env={"REPORT": str(tmp_path / "report"), **env})

    return launch_script


@pytest.fixture
def report(tmp_path):
    """Return the events in the report."""
    path = tmp_path / "report"
    return lambda: [json.loads(line) for line in path.read_text().splitlines()]


JOINING = """
import torch.distributed as dist
with begin():
    meet = "file://" + os.environ["MEET"]
    dist.init_process_group("gloo", init_method=meet, rank=0, world_size=2)
"""


def await_something_in(path):
    """Wait until a rank has come to the store, and waits for others in C code."""
    end_s = time.monotonic() + 600
    while not path.exists() or not path.stat().st_size:
        assert time.monotonic() < end_s
        threading.Event().wait(0.02)


@pytest.mark.torch
@pytest.mark.slow
def test_sigterm_ends_a_rank_whose_peer_never_joins(launch, report, tmp_path):
    """Its main thread waits in C code for minutes; nothing is there to be saved."""
    rank = launch(JOINING, MEET=str(tmp_path / "meet"))
    await_something_in(tmp_path / "meet")
    rank.terminate()
    status, _, err = rank.finish()

    assert status == 143, err
    assert "cannot stop in time, because the main thread is here:\n" in err
    end = report()[-1]
    assert (end["event"], end["status"], end["resumable"]) == ("finish", "KILLED", True)


@pytest.mark.slow
def test_a_stuck_loop_gets_its_grace(launch, report):
    """Where there may be something to be saved, the kill is what ends the wait."""
    code = """
import ctypes
with begin():
    rt.should_stop(1)
    say("waiting")
    ctypes.CDLL(None).pause()
    ctypes.CDLL(None).pause()
"""
    rank = launch(code, DSUP_GRACE_S="3")
    rank.hear()
    rank.terminate()
    status, _, err = rank.finish()

    assert status == 143, err
    assert report()[-1]["status"] == "KILLED"


CHILDREN = """
from torch.utils.data import DataLoader, Dataset
class Pids(Dataset):
    def __len__(self):
        return 1_000_000
    def __getitem__(self, index):
        return os.getpid()
with begin():
    batches = iter(DataLoader(Pids(), num_workers=1))
    say(int(next(batches)[0]))
    sys.stdin.readline()
    child = os.fork()
    if not child:
        signal.signal(signal.SIGTERM, lambda *_: os._exit(5))
        say(os.getpid())
        while True:
            threading.Event().wait(1)
    say(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    until_s = time.monotonic() + 2.5  # longer than an alarm waits
    while time.monotonic() < until_s:
        next(batches)
    say(rt.should_stop(1))
"""


@pytest.mark.torch
@pytest.mark.slow
def test_a_signal_in_a_forked_child_does_not_ring_here(launch, report):
    """It inherits the descriptor; what it hears is not its parent's to answer."""
    rank = launch(CHILDREN)
    os.kill(rank.hear(), signal.SIGTERM)
    rank.go_on()
    os.kill(rank.hear(), signal.SIGTERM)
    status, out, err = rank.finish()

    assert (status, out.splitlines()) == (0, ["5", "null"]), err
    assert report()[-1]["status"] == "FINISHED"


@pytest.mark.slow
def test_asyncios_own_descriptor_is_left_alone(launch):
    """An event loop that runs when the run begins goes on to hear signals."""
    code = """
import asyncio
async def train():
    heard = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, heard.set)
    before = signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(before, warn_on_full_buffer=False)
    with rt.run():
        kill(signal.SIGUSR1)
        await asyncio.wait_for(heard.wait(), 60)
        inside = signal.set_wakeup_fd(-1)
        signal.set_wakeup_fd(inside, warn_on_full_buffer=False)
    after = signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(after, warn_on_full_buffer=False)
    say([before != -1, inside == before, after == before])
asyncio.run(train())
with rt.run():
    pass
say(signal.set_wakeup_fd(-1))
"""
    assert launch(code).finish() == (0, "[true, true, true]\n-1\n", "")


SLOW_END = """
import logging
heard = threading.Event()
class Hears(logging.Handler):
    def emit(self, record):
        heard.set()
class Slow(JsonLinesReporter):
    def finish(self, outcome):
        if TWICE:
            logging.getLogger("dsup_runtime").addHandler(Hears())
        kill(signal.SIGINT)
        if TWICE:
            heard.wait()  # of two signals at once Python's handler hears one
            threading.Event().wait(0.2)  # one that comes before a wait ends none
            kill(signal.SIGINT)
            threading.Event().wait()
        threading.Event().wait(0.5)
        super().finish(outcome)
with begin(Slow):
    BLOCK
say("went on")
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("block", "status", "told"),
    [
        pytest.param("pass", 0, "FINISHED", id="a success"),
        pytest.param("raise KeyboardInterrupt", -2, "KILLED", id="another Ctrl-C"),
        pytest.param("1 / 0", 1, "FAILED", id="a failure"),
    ],
)
def test_ctrl_c_waits_until_the_end_is_told(launch, report, block, status, told):
    """What the process ends with is what its tracker has heard."""
    code = SLOW_END.replace("TWICE", "False").replace("BLOCK", block)
    code, out, err = launch(code).finish()

    assert code == status, err
    assert "cannot interrupt the run, because it is ending" in err
    assert report()[-1]["status"] == told
    assert (out == '"went on"\n') is (status == 0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("block", "status"), [("pass", -signal.SIGINT), ("1 / 0", 1)], ids=["good", "bad"]
)
def test_a_second_ctrl_c_waits_for_no_tracker(launch, block, status):
    """It ends a success as interrupted, and leaves a failure what it is."""
    code = SLOW_END.replace("TWICE", "True").replace("BLOCK", block)

    assert launch(code).finish()[0] == status


def test_a_stop_of_one_run_is_not_the_nexts(launch, report):
    """Runs may follow each other; what one was asked for is no wish of another's."""
    code = """
for fold in range(3):
    with begin():
        say([fold, rt.should_stop(1)])
        if fold < 2:
            rt.request_stop("enough")
            rt.request_stop("enough")
        if fold == 1:
            say(rt.should_stop(2).step)
    say(signal.getsignal(signal.SIGTERM) is signal.SIG_DFL)
"""
    status, out, err = launch(code).finish()

    assert status == 0, err
    assert [json.loads(line) for line in out.splitlines()] == [
        [0, None], True, [1, None], 2, True, [2, None], True,
    ]  # fmt: skip


def test_a_wish_from_before_the_first_run_counts_in_it(launch):
    """It is the run that it was meant for."""
    code = "rt.request_stop('early')\nwith begin(): say(rt.should_stop(1).reason)"

    assert launch(code).finish()[:2] == (0, '"early"\n')


@pytest.mark.parametrize("check", ["", "rt.should_stop(1);"], ids=["none", "before"])
def test_a_stop_that_no_check_decided_is_decided_at_leave(launch, report, check):
    """SIGTERM after the last check of a loop ends the run as any other."""
    code = f"with begin() as run:\n {check} kill(); run.leave(); say('post_train')"
    status, out, err = launch(code).finish()

    assert (status, out) == (143, ""), err
    end = report()[-1]
    assert (end["status"], end["reason"], end["rank"]) == ("KILLED", "SIGTERM", 0)


def test_a_sigterm_after_leave_takes_no_success_back(launch, report):
    """The ranks have parted: nobody is asked, and only the grace runs."""
    code = "with begin() as run:\n run.leave(); kill(); say('post_train')"

    assert launch(code).finish()[:2] == (0, '"post_train"\n')
    assert report()[-1]["status"] == "FINISHED"


@pytest.mark.slow
def test_no_grace_is_too_long_to_be_waited_for(launch):
    """The longest that is taken is one that a lock can wait for."""
    code = "with begin():\n kill(); rt.should_stop(1)"
    status, _, err = launch(code, DSUP_GRACE_S="1e9").finish()

    assert (status, err) == (143, "")


LATE = """
import signal
import dsup_runtime as rt
told = []
try:
    with rt.run() as run:
        for step in range(3):
            rt.should_stop(torch.tensor(step))
        if rank == 1:
            os.kill(os.getpid(), signal.SIGTERM)
        run.leave()
        told.append("post_train")
except SystemExit as end:
    told += [end.code, *rt.stop.agreed()[:4]]
"""


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.parametrize("supervised", [False, True])
def test_a_stop_after_the_last_check_is_all_ranks_own(world, supervised):
    """The loop is over on all: what one was asked is settled where they part."""
    answers = world.run(LATE, supervised=supervised)

    end = [143, "preempt", "SIGTERM", 2, 1]
    assert [answer.get("told", answer) for answer in answers] == [end] * 4
