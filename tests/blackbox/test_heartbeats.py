"""Heartbeats of a real run, by each way that the ranks can report on."""

import json
import os
import signal
import socket
from pathlib import Path

import pytest

from dsup_runtime import contract

pytestmark = [pytest.mark.dsup_only, pytest.mark.slow]

REPORTING = """
import os, threading
from dsup_runtime import beat, info, phase
first = info().attempt * 100
for step in range(first, first + 42):
    beat(step)
    threading.Event().wait(0.002)
with phase("checkpoint", limit_s=600):
    print("supervised:", info().supervised, flush=True)
    while not os.path.exists(os.environ["GO"] + str(info().attempt)):
        threading.Event().wait(0.01)
    os._exit(int(os.environ["RANK"] == "1" and info().attempt == 0))
"""
WAITS = 'os.path.exists(os.environ["GO"] + str(info().attempt))'


@pytest.fixture
def script(run):
    """Give a script that reports steps and a phase, and fails once on rank 1."""
    path = run.files / "reporting.py"
    path.write_text(REPORTING)
    return path


@pytest.fixture
def manager(run):
    """Give a service manager's socket and its name."""
    name = f"dsup-test-{run.mark}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ours:
        ours.bind(f"\0{name}")
        ours.settimeout(600)
        yield ours, f"@{name}"


def saved(run, attempt, local_rank):
    """Return a slot of the page that was saved at the end of an attempt."""
    path = run.run_dir() / f"attempt_{attempt}" / contract.HEARTBEATS_FILE
    words = memoryview(path.read_bytes()).cast("q").tolist()
    assert len(words) * contract.WORD_BYTES == contract.page_bytes(2)
    first = contract.slot_offset(local_rank)
    return words[first : first + contract.SLOT_WORDS]


@pytest.mark.parametrize(
    "kind",
    [*(pytest.param(k, marks=pytest.mark.soak) for k in ("page", "file")), "tcp"],
)
def test_steps_and_phases_are_known_and_kept(run, script, manager, kind):
    """The status, the journal and the saved pages tell the same steps in any way."""
    ours, name = manager
    options = f"--heartbeat {kind} --nproc 2 --max-restarts 1"
    go = str(run.files / "go")
    run.start(options, script=script, env={"NOTIFY_SOCKET": name, "GO": go})
    for attempt, step in enumerate(("step 41", "step 141")):
        while step not in ours.recv(1 << 16).decode():
            pass
        Path(f"{go}{attempt}").touch()

    assert run.ended() == 0, run.console()
    assert run.console().splitlines().count("supervised: True") == 4
    for attempt in (0, 1):
        for rank in (0, 1):
            slot = saved(run, attempt, rank)
            assert slot[contract.SLOT_STEP] == attempt * 100 + 41
            assert contract.PHASES[slot[contract.SLOT_PHASE]] == "checkpoint"
    journal = (run.run_dir() / contract.JOURNAL_FILE).read_text().splitlines()
    steps = [
        event["step"]
        for event in map(json.loads, journal)
        if event.get("event") == "progressed"
    ]
    assert 41 in steps
    run.nothing_left()


def test_a_file_that_cannot_be_made_costs_a_line(run, script, proc):
    """What stands in the file's place is left alone, and the ranks use the page."""
    go = run.files / "go"
    script.write_text(REPORTING.replace(WAITS, f"os.path.exists({str(go)!r})"))
    run.start("--heartbeat file --nproc 2 --max-restarts 1", script=script)
    directory = proc.until(
        lambda: run.logs.exists() and list(run.logs.glob("*/attempt_0/1")), 600, "none"
    )[0].parents[1]
    (directory / "attempt_1").mkdir()
    (directory / "attempt_1" / "heartbeats").symlink_to(run.files / "elsewhere")
    go.touch()

    assert run.ended() == 0, run.console()
    why = "cannot have heartbeats by file in attempt 1, because file exists"
    assert sum(why in line for line in run.said()) == 1, run.console()
    assert not (run.files / "elsewhere").exists()
    assert saved(run, 1, 0)[contract.SLOT_STEP] == 141


def test_no_token_is_left_behind(run, script):
    """The secret of an attempt is in no file and on no stream of the run."""
    spy = "\nopen(os.environ['SPY'], 'a').write(os.environ['DSUP_HEARTBEAT_TOKEN'])\n"
    quick = REPORTING.replace(WAITS, "True")
    script.write_text(quick.replace("first =", f"{spy}first =", 1))
    seen = run.base / "seen"
    run.start("--heartbeat tcp --nproc 1", script=script, env={"SPY": str(seen)})

    assert run.ended() == 0, run.console()
    token = seen.read_bytes()
    assert len(token) == 32
    assert token.decode() not in run.console()
    for above, _, names in os.walk(run.run_dir()):
        for name in names:
            with open(os.path.join(above, name), "rb") as file:
                assert token not in file.read()


def test_a_worker_that_shares_only_the_directory_reports(run, script):
    """A rank whose program closes all it inherits, as a container does, is seen."""
    script.write_text(REPORTING.replace(WAITS, "True"))
    wrapper = run.files / "contained.py"
    wrapper.write_text(
        "import os, subprocess, sys\n"
        "os.closerange(3, 256)\n"
        f"sys.exit(subprocess.call([sys.executable, {str(script)!r}]))\n"
    )
    run.start("--heartbeat file --nproc 2 --max-restarts 1", script=wrapper)

    assert run.ended() == 0, run.console()
    assert run.console().splitlines().count("supervised: True") == 4
    assert saved(run, 1, 1)[contract.SLOT_STEP] == 141


STOPPING = """
import sys
import torch
import torch.distributed as dist
from dsup_runtime import beat
from dsup_runtime.lifecycle.run import run
from dsup_runtime.stop import should_stop
with run() as life:
    dist.init_process_group("gloo")
    for step in range(100_000):
        beat(step)
        dist.all_reduce(torch.ones(1))
        if step == 20:
            print("ready", flush=True)
        if stop := should_stop(step):
            print("left at", step, stop.kind, flush=True)
            break
    life.leave()
sys.exit(143)
"""


@pytest.mark.torch
@pytest.mark.parametrize(
    "kind",
    [*(pytest.param(k, marks=pytest.mark.soak) for k in ("page", "file")), "tcp"],
)
def test_all_ranks_leave_at_the_same_step_by_any_way(run, proc, kind):
    """A stop ends every rank at one step, also where they do not share the page."""
    script = run.files / "stopping.py"
    script.write_text(STOPPING)
    run.start(f"--heartbeat {kind} --nproc 2", script=script)
    proc.until(lambda: "ready" in run.console(), 600, run.console)
    run.signal(signal.SIGTERM)

    assert run.ended() == 143, run.console()
    left = [line for line in run.console().splitlines() if line.startswith("left at")]
    assert len(left) == 2, run.console()
    assert len(set(left)) == 1
    assert left[0].endswith("preempt")
