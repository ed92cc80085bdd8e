"""Hangs of real runs: seen without any help of the script's, and proven by stacks.

Who is the cause of one, and what the verdict says, is in ``test_hang_verdicts``.
"""

import json
import os
import signal
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.dsup_only, pytest.mark.slow]

STEPS = """
import os, time
from dsup_runtime import beat
def lost():
    time.sleep(1000)
def others():
    time.sleep(1000)
for step in range(40):
    beat(step)
    time.sleep(0.02)
lost() if os.environ["RANK"] == "1" else others()
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


@pytest.fixture
def script(run):
    """Give ``script(text)``: the path of a script."""

    def write(text):
        path = run.files / "script.py"
        path.write_text(text)
        return path

    return write


def test_a_frozen_rank_is_named_within_three_seconds(run, proc):
    """Without the runtime, and whoever froze it: the kernel knows."""
    run.start("--nproc 3", "*:emit=ready,hang")
    run.wait_event("ready", 3)
    proc.until(lambda: len(journal(run, "rank_started")) == 3, 10, "a journal")
    os.kill(pids(run)[1], signal.SIGSTOP)

    (told,) = proc.until(lambda: journal(run, "hang_suspected"), 3, run.console)
    (seen,) = proc.until(lambda: journal(run, "captured"), 10, run.console)

    assert (told["ranks"], told["why"]) == ([1], "frozen")
    assert seen["ranks"] == [1]
    assert any("rank 1" in line and "frozen" in line for line in run.said())
    assert "state T" in (run.run_dir() / "attempt_0/1/stacks.txt").read_text()

    os.kill(pids(run)[1], signal.SIGCONT)
    proc.until(lambda: journal(run, "hang_cleared"), 5, run.console)
    run.signal(signal.SIGTERM)
    assert run.ended() == 143


def test_who_did_not_come_is_named_while_all_live(run, proc, script):
    """The others wait at one place, it is at another; nobody was harmed."""
    run.start("--nproc 4", script=script(STEPS))
    (told,) = proc.until(lambda: journal(run, "hang_suspected"), 30, run.console)
    (seen,) = proc.until(lambda: journal(run, "captured"), 10, run.console)

    assert told["usual_s"] == pytest.approx(0.02, abs=0.05)
    assert (seen["final"], seen["ranks"]) == (False, [1])
    assert "script.py" in seen["place"]
    assert "in lost" in (run.run_dir() / "attempt_0/1/stacks.txt").read_text()
    assert "in others" in (run.run_dir() / "attempt_0/0/stacks.txt").read_text()
    assert all(proc.state_of(pid) == "S" for pid in pids(run).values())


def test_a_hang_that_outlasts_its_limit_ends_the_attempt(run, proc, script):
    """The stacks are there before the first signal, and within the deadline."""
    run.start("--nproc 2 --max-restarts 0 --hang-after train=3", script=script(STEPS))

    code = run.ended(40)

    (confirmed,) = journal(run, "hang_confirmed")
    final = [one for one in journal(run, "captured") if one["final"]]
    assert confirmed["why"] == "limit"
    assert len(final) == 1
    assert final[0]["at_s"] - confirmed["at_s"] < 10
    assert code == 194
    assert "in lost" in (run.run_dir() / "attempt_0/1/stacks.txt").read_text()
    run.nothing_left()


def test_a_rank_that_sleeps_in_the_kernel_is_named(run, proc, compiled):
    """State D for ten seconds without any processor time, and no Python there."""
    program = compiled(VFORK)
    run.start(f"--nproc 2 --no-python {program}", script=None)

    (told,) = proc.until(lambda: journal(run, "hang_suspected"), 25, run.console)

    assert (told["ranks"], told["why"]) == ([0, 1], "asleep")
    proc.until(lambda: journal(run, "captured"), 10, run.console)
    assert "state D" in (run.run_dir() / "attempt_0/0/stacks.txt").read_text()
    run.signal(signal.SIGTERM)
    run.ended()


def test_an_agent_that_was_stopped_suspects_nobody(run, proc, script):
    """Nobody has looked meanwhile, so nobody can say that there was no step."""
    looping = STEPS.replace("range(40)", "range(10**9)")
    run.start("--nproc 2", script=script(looping))
    (agent,) = proc.until(lambda: proc.children_of(run.process.pid), 10, "an agent")
    proc.until(lambda: len(journal(run, "rank_started")) == 2, 10, "the ranks' start")
    os.kill(agent, signal.SIGSTOP)
    proc.until(lambda: run.elapsed_s() > 9, 20, "time")
    os.kill(agent, signal.SIGCONT)

    proc.until(lambda: journal(run, "loop_stalled"), 10, run.console)
    proc.until(lambda: run.elapsed_s() > 13, 20, "time")

    assert not journal(run, "hang_suspected")


def test_without_limits_nothing_is_looked_for(run, proc):
    """A frozen rank may be a user's wish."""
    run.start("--nproc 1 --hang-after off", "*:emit=ready,wait=go")
    run.wait_event("ready")
    proc.until(lambda: journal(run, "rank_started"), 10, "a journal")
    os.kill(pids(run)[0], signal.SIGSTOP)
    proc.until(lambda: proc.state_of(pids(run)[0]) == "T", 5, "a frozen rank")
    proc.until(lambda: run.elapsed_s() > 4, 20, "time")
    os.kill(pids(run)[0], signal.SIGCONT)
    run.emit("go")

    assert run.ended() == 0
    assert not journal(run, "hang_suspected")


def test_stacks_of_a_live_run_are_shown_from_another_shell(run, proc, script):
    """By whoever watches it, without any harm to it."""
    run.start("--nproc 2", script=script(STEPS))
    proc.until(lambda: len(journal(run, "rank_started")) == 2, 10, "a journal")
    proc.until(lambda: journal(run, "hang_suspected"), 20, run.console)

    shown = subprocess.run(
        [sys.executable, "-m", "dsup", "stacks", str(run.run_dir())],
        env=run.environ({}),
        capture_output=True,
        text=True,
        check=False,
    )

    assert shown.returncode == 0, shown.stderr
    assert "in lost" in shown.stdout
    assert "in others" in shown.stdout
    assert all(proc.state_of(pid) == "S" for pid in pids(run).values())
