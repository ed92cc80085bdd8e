"""Nothing that only takes long is a hang: no word of one, and nobody is ended.

Run by hand: ``pytest -m soak -n 0 tests/soak/test_hangs.py``; the minutes of the long
row are set by ``DSUP_TEST_SOAK_MINUTES``: all cores are kept busy, the agent is stopped
now and then, and the wall clock is another each time it is looked at.
"""

import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.soak]

WORKERS = Path(__file__).parent.parent / "blackbox" / "workers"
LIVELY = WORKERS / "lively.py"
MINUTES = float(os.environ.get("DSUP_TEST_SOAK_MINUTES", "0"))
ALARMS = ("hang_confirmed",)
WORDS = ("hang:", "frozen", "asleep", "did not come")
RANKS = 4
BURN = "while True: sum(range(1000))"
JUMPY = """
    #define _GNU_SOURCE
    #include <dlfcn.h>
    #include <time.h>
    int clock_gettime(clockid_t id, struct timespec *at) {
        static int (*real)(clockid_t, struct timespec *);
        if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
        int got = real(id, at);
        struct timespec now;
        real(CLOCK_MONOTONIC, &now);
        if (id == CLOCK_REALTIME)
            at->tv_sec += now.tv_sec / 30 % 3 * 3600 - 3600;
        return got;
    }
"""
"""The wall clock is an hour late, right, or an hour early, each for half a minute."""


def alarms_of(run):
    """Return the events and the lines of dsup's that speak of a hang."""
    journal = (run.run_dir() / "events.jsonl").read_text().splitlines()
    events = [json.loads(line) for line in journal]
    found = [event for event in events if event.get("event") in ALARMS]
    said = [line for line in run.said() if any(word in line for word in WORDS)]
    return found, said


@pytest.fixture
def burning():
    """Keep every core busy with processes of no great priority."""
    command = [sys.executable, "-c", BURN]
    burners = [subprocess.Popen(command) for _ in range(os.cpu_count() or 1)]
    yield burners
    for burner in burners:
        burner.kill()
        burner.wait()


@pytest.mark.timeout(150)
@pytest.mark.parametrize(
    ("kind", "seconds", "long_s"),
    [
        pytest.param("compile", 22, 15, id="a first step of 15 s"),
        pytest.param("eval", 40, 8, id="evaluations of 8 s in their phase"),
        pytest.param("unwrapped", 30, 0, id="every 100th step takes 40 times as long"),
    ],
)
def test_what_takes_long_is_no_hang(run, burning, kind, seconds, long_s):
    """On a node whose cores are all busy."""
    run.start(f"--nproc {RANKS}", kind, str(seconds), str(long_s), script=LIVELY)

    assert run.ended(120) == 0, run.console()
    assert alarms_of(run) == ([], [])


@pytest.mark.timeout(90)
def test_an_agent_that_was_stopped_blames_nobody(run, proc):
    """What passed while it could not look is no silence of the ranks."""
    run.start(f"--nproc {RANKS}", "none", "25", "0", script=LIVELY)
    wait = threading.Event().wait
    wait(6)
    (agent,) = proc.children_of(run.process.pid)
    os.kill(agent, signal.SIGSTOP)
    wait(8)
    os.kill(agent, signal.SIGCONT)

    assert run.ended(60) == 0, run.console()
    assert alarms_of(run) == ([], [])


@pytest.mark.skipif(not MINUTES, reason="by hand: DSUP_TEST_SOAK_MINUTES is not set")
@pytest.mark.timeout(MINUTES * 60 + 300)
def test_a_long_run_on_a_busy_node(run, proc, burning, tmp_path):
    """Checkpoints, evaluations, a stopped agent, a wall clock that jumps by an hour."""
    library = tmp_path / "jumpy.so"
    build = ["cc", "-shared", "-fPIC", "-o", library, "-x", "c", "-", "-ldl"]
    subprocess.run(build, input=textwrap.dedent(JUMPY).encode(), check=True)
    arguments = "mixed", str(MINUTES * 60), "90"
    env = {"LD_PRELOAD": str(library)}
    run.start(f"--nproc {RANKS}", *arguments, script=LIVELY, env=env)
    wait = threading.Event().wait
    wait(10)
    (agent,) = proc.children_of(run.process.pid)
    for _ in range(int(MINUTES) - 1):
        wait(50)
        os.kill(agent, signal.SIGSTOP)
        wait(10)
        os.kill(agent, signal.SIGCONT)

    assert run.ended(240) == 0, run.console()
    assert alarms_of(run) == ([], [])
