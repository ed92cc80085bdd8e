"""The companions at the end of a run: whatever became of them, its end is told."""

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

DRIVE = """
import json, os, resource, signal, sys, time
from types import SimpleNamespace
from dsup.companions import Companions
from dsup.core import commands as cmd
from dsup.core import machine
from dsup.core.state import Policy, Spec
from dsup.edges import control, notifier
from dsup.edges.aide import Aides
from dsup.edges.loop import Loop
from dsup.linux import libc, proc, tree
from dsup.report import notices

def turn_until(holds):
    end_s = time.monotonic() + 600
    while not holds():
        loop.turn(min(aides.deadline(), time.monotonic() + 0.02))
        aides.expire(time.monotonic())
        if time.monotonic() > end_s:
            sys.exit(f"it did not become so: {said}")

def meet(fate):
    if fate == "stopped":
        for pid in companions.pids:
            os.kill(pid, signal.SIGSTOP)
            turn_until(lambda: proc.stat(pid).state == "T")
        return
    for pid in tuple(companions.pids):
        os.kill(pid, signal.SIGKILL)
    turn_until(lambda: not companions.pids)
    if fate == "without descriptors":
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))

libc.become_subreaper()
base, fate = sys.argv[1:]
said, loop = [], Loop()
aides = Aides(loop)
job = SimpleNamespace(
    on_event=f"sh -c 'cat >> {base}/events; echo >> {base}/events'",
    metrics="", metrics_file=f"{base}/dsup.prom", environment=dict(os.environ),
    run_dir=f"{base}/run", run_id="r", program="train.py",
)
last = {"outcome": "stopped", "live": True, "exit": {"code": 143}, "attempt": 0}
present = SimpleNamespace(document=lambda anew=False: last)
companions = Companions(job, aides, present, said.append)
companions.started(f"{base}/nobody.sock")
turn_until(lambda: os.path.exists(job.metrics_file))
meet(fate)
spec = Spec(2, 2.0, 5.0, False, Policy(0, (1.0,), 1.0, False, False))
companions.end(machine.initial(spec), cmd.Exit("exit", 143, "dsup"), "x")
if fate != "without descriptors":
    turn_until(lambda: not aides.pids)
print(json.dumps({"said": said, "left": tree.alive()}))
"""


@pytest.fixture
def end(tmp_path):
    """Let the companions of a run meet their fate, then end the run."""

    def drive(fate):
        done = subprocess.run(
            [sys.executable, "-c", DRIVE, str(tmp_path), fate],
            capture_output=True,
            check=False,
            text=True,
            timeout=600,
        )
        assert (done.returncode, done.stderr) == (0, "")
        return json.loads(done.stdout)

    return drive


@pytest.mark.parametrize("fate", ["killed", "stopped"])
def test_the_end_is_told_by_others_where_the_companions_are_of_no_use(
    end, tmp_path, fate
):
    """Killed and not replaced yet, or stopped: file and command know the exit code."""
    found = end(fate)

    (told,) = (tmp_path / "events").read_text().splitlines()
    assert (json.loads(told)["event"], json.loads(told)["code"]) == ("run_ended", 143)
    metrics = (tmp_path / "dsup.prom").read_text()
    assert 'dsup_exit_code{run="run"} 143.0' in metrics
    assert 'dsup_up{run="run"} 0.0' in metrics
    assert found == {"said": [], "left": []}


def test_an_event_that_nobody_can_tell_is_counted(end, tmp_path):
    """No process is to be had for it: that costs a line."""
    found = end("without descriptors")

    assert "--on-event: 1 of the events was not told" in found["said"]
    assert not (tmp_path / "events").exists()
