"""The unit under a real systemd: what it starts, stops, restarts and lets be."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from dsup.core import exits

UNIT = Path(__file__).parents[2] / "systemd" / "dsup@.service"
pytestmark = [
    pytest.mark.systemd,
    pytest.mark.root,
    pytest.mark.slow,
    pytest.mark.timeout(90),
]

SLEEP = "import time\ntime.sleep(600)\n"


def setting(name):
    """Return a setting of the shipped unit, its continued lines joined."""
    text = UNIT.read_text().replace("\\\n", " ")
    return next(
        line.partition("=")[2]
        for line in text.splitlines()
        if line.startswith(f"{name}=")
    )


def test_the_unit_is_sound():
    """Systemd's own check finds nothing to complain about."""
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(UNIT)],
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")


def test_permanent_codes_are_those_of_the_exit_table():
    """Below 128, and 130, another try gives the same; every other code gets one."""
    prevented = {int(word) for word in setting("RestartPreventExitStatus").split()}
    in_table = {cause.code for cause in exits.CAUSES.values()}

    assert prevented == {*range(1, 128), 130}
    assert {code for code in in_table if code < 128} <= prevented
    assert setting("SuccessExitStatus") == "143"


def test_it_is_active_once_its_ranks_run(job):
    """READY comes after the ranks were started, and the status tells of them."""
    running = job(SLEEP).start()

    running.until(ActiveState="active", SubState="running")
    running.until(StatusText="attempt 0, 2 of 2 ranks")
    assert running["OOMPolicy"] == "continue"


def test_a_stop_is_clean_and_leaves_nothing(job):
    """The ranks get their SIGTERM from dsup, the unit ends as a success."""
    running = job(SLEEP).start()
    running.until(StatusText="attempt 0, 2 of 2 ranks")

    running.system.ctl("stop", running.unit)

    running.until(ActiveState="inactive", Result="success")
    assert running.pids() == []


def test_what_would_fail_again_is_not_restarted(job):
    """An exit code below 128 is the job's own, and another try gives the same."""
    failed = job("import sys\nsys.exit(3)\n", "settle = 0").start()

    failed.until(ActiveState="failed", Result="exit-code", ExecMainStatus="3")
    assert failed["NRestarts"] == "0"


def test_what_may_work_again_is_restarted(job):
    """From 128 on another try, perhaps elsewhere, is worth it."""
    script = "import os\nos.kill(os.getpid(), 9)\n"
    killed = job(script, drop_in="RestartSec=100ms").start()

    killed.system.until(lambda: int(killed["NRestarts"]) >= 1)
    assert killed["ExecMainStatus"] in {"0", "137"}


def test_a_hanging_agent_is_ended_by_the_watchdog(job):
    """Its guard is told by SIGABRT, and leaves neither rank nor helper."""
    running = job(SLEEP, drop_in="WatchdogSec=1\nRestart=no").start()
    running.until(StatusText="attempt 0, 2 of 2 ranks")
    guard = int(running["MainPID"])
    [agent] = agents(running, guard)

    os.kill(agent, signal.SIGSTOP)

    running.until(ActiveState="failed", Result="watchdog", ExecMainStatus="134")
    assert running.pids() == []


def agents(running, guard):
    """Return the guard's children, as pids outside of the namespace."""
    outside = [
        int(path.parent.name)
        for path in Path("/proc").glob("[0-9]*/status")
        if f"NSpid:\t{path.parent.name}\t{guard}\n" in path.read_text()
    ]
    [pid] = outside
    told = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in told]
