"""Hangs of real runs: seen without any help of the script's, and proven by stacks.

Who is the cause of one, and what the verdict says, is in ``test_hang_verdicts``.
"""

import json
import os
import signal
import subprocess
import sys
import threading
from itertools import takewhile

import pytest

pytestmark = [pytest.mark.dsup_only, pytest.mark.slow]
SOON_S = 600
STOPPED_S = 6.0
"""Far longer than a rank may go without a step before it is suspected."""

LOOKS_S = 3.0
"""The agent looks every second."""

passed = threading.Event().wait

STEPS = """
import os, time
from dsup_runtime import beat
def lost():
    time.sleep(1000)
place = "/torch/distributed/c10d.py"  # where a stack shows a collective
exec(compile("def all_reduce(): time.sleep(1000)", place, "exec"))
def others():
    all_reduce()
for step in range(40):
    beat(step)
    time.sleep(0.02)
lost() if os.environ["RANK"] == "1" else others()
"""
SLEEPS = """
import os, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
open(os.path.join(os.environ["READY"], os.environ["RANK"]), "w").close()
signal.sigwait([signal.SIGUSR1])
os.execv(sys.argv[1], sys.argv[1:])
"""
VFORK = r"""
#include <stdio.h>
#include <unistd.h>
int main(void) {
    puts("begun"); fflush(stdout);
    if (vfork() == 0) for (;;) pause();
    return 0;
}
"""


def journal(run, event):
    """Return the events of a kind in the journal so far."""
    files = run.logs.glob("*/events.jsonl")
    lines = [line for file in files for line in file.read_bytes().split(b"\n")[:-1]]
    return [one for one in map(json.loads, lines) if one.get("event") == event]


def pids(run):
    """Return the pid of each rank."""
    return {one["rank"]: one["pid"] for one in journal(run, "rank_started")}


def suspected(run, why):
    """Return the ranks of each suspicion of a kind so far."""
    told = journal(run, "hang_suspected")
    return [one["ranks"] for one in told if one["why"] == why]


@pytest.fixture
def script(run):
    """Give ``script(text)``: the path of a script."""

    def write(text):
        path = run.files / "script.py"
        path.write_text(text)
        return path

    return write


def test_a_rank_is_named_that_is_frozen_or_sleeps_in_the_kernel(
    run, proc, script, compiled
):
    """Without the runtime, whoever did it, and where no Python is: the kernel knows."""
    ready, program = run.base / "ready", str(compiled(VFORK))
    ready.mkdir()
    options = "--nproc 3 --shutdown-timeout 1"
    run.start(options, program, script=script(SLEEPS), env={"READY": str(ready)})
    proc.until(lambda: len(list(ready.iterdir())) == 3, SOON_S, run.console)
    proc.until(lambda: len(journal(run, "rank_started")) == 3, SOON_S, "a journal")
    frozen, asleep = pids(run)[1], pids(run)[2]
    os.kill(asleep, signal.SIGUSR1)
    proc.until(lambda: proc.state_of(asleep) == "D", SOON_S, "a rank that sleeps")
    os.kill(frozen, signal.SIGSTOP)

    proc.until(lambda: suspected(run, "frozen") == [[1]], SOON_S, run.console)
    seen, *_ = proc.until(lambda: journal(run, "captured"), SOON_S, run.console)
    assert 1 in seen["ranks"]
    proc.until(
        lambda: any("rank 1" in line and "frozen" in line for line in run.said()),
        SOON_S,
        run.console,
    )
    stacks = [run.run_dir() / f"attempt_0/{rank}/stacks.txt" for rank in (1, 2)]
    assert "state T" in stacks[0].read_text()
    assert "state D" in stacks[1].read_text()

    os.kill(frozen, signal.SIGCONT)
    proc.until(lambda: journal(run, "hang_cleared"), SOON_S, run.console)
    proc.until(lambda: suspected(run, "asleep") == [[2]], SOON_S, run.console)
    run.signal(signal.SIGTERM)
    assert run.ended() == 143


def test_who_did_not_come_is_named_while_all_live(run, proc, script):
    """The others wait at one place, it is at another, as people see, unharmed."""
    run.start("--nproc 4", script=script(STEPS))
    told, *_ = proc.until(lambda: journal(run, "hang_suspected"), SOON_S, run.console)
    seen, *_ = proc.until(lambda: journal(run, "captured"), SOON_S, run.console)
    shown = subprocess.run(
        [sys.executable, "-m", "dsup", "stacks", str(run.run_dir())],
        env=run.environ({}),
        capture_output=True,
        text=True,
        check=False,
    )

    assert told["why"] in {"silent", "stalled"}
    assert (seen["final"], seen["ranks"]) == (False, [1])
    assert (seen["op"], seen["taken"]) == ("all_reduce", True)
    assert "script.py" in seen["place"]
    stacks = [run.run_dir() / f"attempt_0/{rank}/stacks.txt" for rank in (0, 1)]
    for text in ("".join(path.read_text() for path in stacks), shown.stdout):
        assert "in lost" in text, shown.stderr
        assert "in others" in text
    assert shown.returncode == 0, shown.stderr
    assert all(proc.state_of(pid) == "S" for pid in pids(run).values())


def test_a_hang_that_outlasts_its_limit_ends_the_attempt(run, proc, script):
    """The stacks are there before the first signal."""
    run.start("--nproc 2 --max-restarts 0 --hang-after train=3", script=script(STEPS))

    code = run.ended()

    (confirmed,) = journal(run, "hang_confirmed")
    assert confirmed["why"] == "limit"
    course = iter(run.journal("captured", "signal_ranks"))
    captured = list(takewhile(lambda one: hasattr(one, "final"), course))
    assert captured[-1].final
    assert code == 194
    assert "in lost" in (run.run_dir() / "attempt_0/1/stacks.txt").read_text()
    run.nothing_left()


def test_an_agent_that_was_stopped_suspects_nobody(run, proc, script):
    """Nobody has looked meanwhile, so nobody can say that there was no step."""
    looping = STEPS.replace("range(40)", "range(10**9)")
    tells = "beat(step); step == 100 and print('ready')"
    looping = looping.replace("beat(step)", tells)
    run.start("--nproc 2", script=script(looping))
    proc.until(lambda: run.console().count("ready") == 2, SOON_S, run.console)
    (agent,) = proc.children_of(run.process.pid)
    os.kill(agent, signal.SIGSTOP)
    passed(STOPPED_S)
    os.kill(agent, signal.SIGCONT)

    proc.until(lambda: journal(run, "loop_stalled"), SOON_S, run.console)
    passed(LOOKS_S)

    assert not journal(run, "hang_suspected")


def test_without_limits_nothing_is_looked_for(run, proc):
    """A frozen rank may be a user's wish."""
    run.start("--nproc 1 --hang-after off", "*:emit=ready,wait=go")
    run.wait_event("ready")
    proc.until(lambda: journal(run, "rank_started"), SOON_S, "a journal")
    os.kill(pids(run)[0], signal.SIGSTOP)
    proc.until(lambda: proc.state_of(pids(run)[0]) == "T", SOON_S, "a frozen rank")
    passed(LOOKS_S)
    os.kill(pids(run)[0], signal.SIGCONT)
    run.emit("go")

    assert run.ended() == 0
    assert not journal(run, "hang_suspected")
