"""Nothing that only takes long is a hang: no word of one, and nobody is ended.

Run by hand: ``pytest -m soak -n 0 tests/soak/test_hangs.py``; the minutes of the long
row are set by ``DSUP_TEST_SOAK_MINUTES``: the example trains, saves and evaluates while
stress-ng keeps all cores busy, the agent is stopped every minute, and the wall clock
goes forward and back by an hour. What was seen is printed (``-rP`` shows it).
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
from collections import Counter
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.soak]

WORKERS = Path(__file__).parent.parent / "blackbox" / "workers"
LIVELY = WORKERS / "lively.py"
EXAMPLE = Path(__file__).parent / "scenarios" / "evaluates.py"
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


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("kind", "seconds", "long_s"),
    [
        pytest.param("compile", 75, 60, id="a first step of 60 s"),
        pytest.param("eval", 40, 8, id="evaluations of 8 s in their phase"),
        pytest.param("unwrapped", 90, 0, id="every 100th step takes 40 times its time"),
    ],
)
def test_what_takes_long_is_no_hang(run, burning, kind, seconds, long_s):
    """On a node whose cores are all busy."""
    run.start(f"--nproc {RANKS}", kind, str(seconds), str(long_s), script=LIVELY)

    assert run.ended(240) == 0, run.console()
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


@pytest.fixture
def stress():
    """Keep every core, the disk and some memory busy, as others' work may do."""
    program = shutil.which("stress-ng") or pytest.skip("stress-ng is not installed")
    work = ("--cpu", "0", "--hdd", "1", "--hdd-bytes", "64M", "--vm", "1")
    with subprocess.Popen([program, *work, "--vm-bytes", "128M"]) as process:
        yield
        process.terminate()


def figures(run, agent_cpu_s):
    """Return what the run did and what was said of it, for people."""
    journal = (run.run_dir() / "events.jsonl").read_text().splitlines()
    events = [json.loads(line) for line in journal]
    counts = Counter(event.get("event") for event in events)
    doubts = [
        {name: event.get(name) for name in ("at_s", "ranks", "why", "since_s")}
        for event in events
        if event.get("event") == "hang_suspected"
    ]
    steps = [event["step"] for event in events if event.get("event") == "progressed"]
    return {
        "agent_cpu_ms_a_minute": round(1000 * agent_cpu_s / MINUTES),
        "steps": max(steps, default=0),
        "events": dict(counts),
        "suspected": doubts,
    }


def cpu_s(pid):
    """Return the processor time of a process so far, seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.torch
@pytest.mark.skipif(not MINUTES, reason="by hand: DSUP_TEST_SOAK_MINUTES is not set")
@pytest.mark.timeout(MINUTES * 60 + 300)
def test_a_long_run_on_a_busy_node(run, proc, stress, tmp_path):
    """Checkpoints, evaluations, a stopped agent, a wall clock that jumps by an hour."""
    library = tmp_path / "jumpy.so"
    build = ["cc", "-shared", "-fPIC", "-o", library, "-x", "c", "-", "-ldl"]
    subprocess.run(build, input=textwrap.dedent(JUMPY).encode(), check=True)
    saved = run.files / "saved"
    run.start(
        f"--nproc 2 --checkpoint-dir {saved} --stop-after {MINUTES * 60}",
        *("90", "--steps", "1000000", "--checkpoints", str(saved)),
        script=EXAMPLE,
        env={"LD_PRELOAD": str(library)},
    )
    wait = threading.Event().wait
    wait(10)
    (agent,) = proc.children_of(run.process.pid)
    spent_s = 0.0
    for _ in range(int(MINUTES) - 1):
        wait(50)
        os.kill(agent, signal.SIGSTOP)
        wait(10)
        spent_s = cpu_s(agent)
        os.kill(agent, signal.SIGCONT)

    code = run.ended(240)

    print(json.dumps(figures(run, spent_s), indent=1))
    assert code == 143, run.console()
    assert alarms_of(run) == ([], [])
