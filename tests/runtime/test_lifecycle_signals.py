"""SIGTERM inside a run: a flag for the loop, and nothing for other processes."""

import os
import select
import signal
import threading
from pathlib import Path

import pytest

BEGIN = """
import os, signal, sys, threading, time
import dsup_runtime as rt
def kill(signum=signal.SIGTERM):
    os.kill(os.getpid(), signum)
"""


HEARD = " while not rt.stop.wish(): time.sleep(0.01)\n"
"""Python may run a handler a moment after the signal was sent."""


def kind_of(number, heard=""):
    """Return the script that prints the kind of the stop after a signal."""
    return (
        f"with rt.run() as run:\n kill(signal.{number})\n{heard}"
        " stop = rt.should_stop(1)\n print(stop and (stop.kind, stop.reason))\n"
    )


@pytest.mark.parametrize(
    ("number", "listed", "printed", "status"),
    [
        ("SIGTERM", "", "('preempt', 'SIGTERM')\n", 143),
        ("SIGUSR1", "SIGTERM,SIGUSR1", "('preempt', 'SIGUSR1')\n", 143),
        ("SIGHUP", "NONSENSE, SIGHUP", "('preempt', 'SIGHUP')\n", 143),
        ("SIGUSR1", "SIGTERM", "", -signal.SIGUSR1),
        ("SIGINT", "SIGTERM,SIGINT", "", -signal.SIGINT),
    ],
)
def test_what_the_launcher_handles_asks_for_a_stop(
    run, number, listed, printed, status
):
    """SIGTERM always, others if listed, SIGINT never: it is KeyboardInterrupt."""
    env = {"TORCHELASTIC_SIGNALS_TO_HANDLE": listed}

    assert run(BEGIN + kind_of(number, HEARD), env=env)[:2] == (status, printed)


def test_a_handler_of_the_scripts_own_is_called_too_and_put_back(run):
    """The run comes before it, not in its place."""
    script = """
def own(signum, frame):
    print("own", signum)
signal.signal(signal.SIGTERM, own)
try:
    with rt.run():
        kill()
        print(rt.should_stop(1).kind)
finally:
    assert signal.getsignal(signal.SIGTERM) is own
"""
    status, out, err = run(BEGIN + script)

    assert (status, out, err) == (143, "own 15\npreempt\n", "")


def test_a_handler_set_inside_the_run_stays(run):
    """What the script has put there since is not the run's to take away."""
    script = """
with rt.run():
    signal.signal(signal.SIGTERM, print)
assert signal.getsignal(signal.SIGTERM) is print
"""
    assert run(BEGIN + script) == (0, "", "")


def test_an_ignored_signal_stays_ignored(run):
    """Whoever started the run so wanted it so."""
    script = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + kind_of("SIGTERM")

    assert run(BEGIN + script)[:2] == (0, "None\n")


def test_a_run_in_another_thread_handles_no_signals(run):
    """Python lets only the main thread; everything else works."""
    script = """
def train():
    with rt.run():
        print(signal.getsignal(signal.SIGTERM) is signal.SIG_DFL)
thread = threading.Thread(target=train)
thread.start()
thread.join()
"""
    assert run(BEGIN + script) == (0, "True\n", "")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("pause_s", "status"),
    [
        pytest.param(0, 143, id="at once: the same one"),
        pytest.param(1.2, -signal.SIGTERM, id="later: the end"),
    ],
)
def test_a_second_sigterm_does_what_it_did_before(run, pause_s, status):
    """A launcher and a scheduler may both send one; who insists is obeyed."""
    script = f"""
with rt.run():
    kill()
    threading.Event().wait({pause_s})
    kill()
    rt.should_stop(1)
"""
    assert run(BEGIN + script)[0] == status


@pytest.mark.slow
def test_children_of_the_scripts_own_end_by_sigterm_as_ever(run):
    """A pool terminates its workers so, and waits for them."""
    script = """
import multiprocessing
if __name__ == "__main__":
    with rt.run():
        with multiprocessing.get_context("fork").Pool(2) as pool:
            print(pool.map(abs, [-1]))
        child = os.fork()
        if not child:
            threading.Event().wait()
        os.kill(child, signal.SIGTERM)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        print(rt.should_stop(1))
"""
    assert run(BEGIN + script) == (0, "[1]\n-15\nNone\n", "")


LOADING = """
import json
from torch.utils.data import DataLoader, Dataset
class Pids(Dataset):
    def __len__(self):
        return 100
    def __getitem__(self, index):
        return os.getpid()
with rt.run():
    batches = iter(DataLoader(Pids(), num_workers=2))
    print(json.dumps(sorted({int(next(batches)[0]) for _ in range(6)})), flush=True)
    sys.stdin.readline()
    next(batches)
    if sys.argv[1:]:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for worker in batches._workers:
            worker.terminate()
            worker.join(60)
        print(json.dumps([worker.exitcode for worker in batches._workers]), flush=True)
        os._exit(7)
    sys.stdin.readline()
"""


def until_taken(pid):
    """Wait until no signal waits to be taken by a process."""
    pause = threading.Event()
    status = Path(f"/proc/{pid}/status")
    while "\nShdPnd:\t0000000000000000\n" not in status.read_text():
        pause.wait(0.01)


@pytest.fixture
def loading(start):
    """Start a rank whose DataLoader has two workers; return it and their pids."""

    def begin(*more):
        from sys import executable

        rank = start([executable, "-c", BEGIN + LOADING, *more])
        return rank, rank.hear()

    return begin


@pytest.mark.torch
@pytest.mark.slow
def test_a_loaders_worker_outlives_a_sigterm_but_not_its_own_ranks(loading):
    """From anybody else the signal is nothing to it; its rank can still end it."""
    rank, workers = loading("end them")
    for pid in workers:
        os.kill(pid, signal.SIGTERM)
        until_taken(pid)  # the kernel keeps one of two signals that wait
    rank.go_on()

    assert rank.hear() == [0, 0]
    assert rank.finish()[0] == 7


@pytest.mark.torch
@pytest.mark.slow
def test_a_loaders_worker_does_not_outlive_its_rank(loading):
    """It was spared the signal, and still ends when its rank is killed."""
    rank, workers = loading()
    ends = select.poll()
    for pid in workers:
        ends.register(os.pidfd_open(pid), select.POLLIN)
    rank.kill()

    gone: set[int] = set()
    while len(gone) < len(workers) and (ready := ends.poll(60_000)):
        for fd, _ in ready:
            ends.unregister(fd)
            os.close(fd)
            gone.add(fd)
    assert len(gone) == len(workers)
