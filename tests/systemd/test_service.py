"""dsup as a service under a real systemd: start, stop, restart, watchdog."""

import signal

import pytest

pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.systemd]

BEGIN = """
import os, pathlib, signal, sys
here = pathlib.Path(os.environ["HERE"])
rank = int(os.environ["RANK"])
def mark(name, text=""):
    whole = here / f"{name}.{rank}"
    (here / f"new.{rank}").write_text(text)
    (here / f"new.{rank}").rename(whole)
"""
FAST_RUN = """
nproc = 2
settle = 0.2
backoff = 0
shutdown-timeout = 60
"""
FORGED = """
import socket
forged = f"MAINPID={os.getpid()}\\nWATCHDOG=trigger".encode()
teller = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
teller.sendto(forged, "/run/systemd/notify")
"""
RANKS = """
mark("began", str(os.getpid()))
signal.pause()
"""


def test_it_is_active_once_the_ranks_run(service):
    """``systemctl start`` returns when what is ordered after the service may begin.

    ``systemctl status`` shows the attempt, the ranks and their step. The runs of each
    instance are in a directory of its own, private, below /var/lib/dsup. A rank is not
    listened to, though nothing keeps it from speaking to systemd.
    """
    beat = "import dsup_runtime\ndsup_runtime.beat(12)\n"
    service.configure(FAST_RUN, script=BEGIN + FORGED + beat + RANKS)
    service.start()

    assert service.show("ActiveState", "SubState") == ["active", "running"]
    # Guard, agent, two ranks; one that is being moved to its cgroup may be in none.
    service.until(lambda: len(service.processes()) >= 4)
    service.until(lambda: service.files("began.*") == ["began.0", "began.1"])
    service.comes_to(StatusText="attempt 0, 2 of 2 ranks, step 12")
    rank = int((service.directory / "began.0").read_text())
    assert 1 < int(service.show("MainPID")) < rank
    assert service.show("ActiveState", "NRestarts") == ["active", "0"]
    (run,) = (service.state / "runs").iterdir()
    assert (run / "attempt_0").is_dir()
    assert service.state.stat().st_mode & 0o777 == 0o700


def test_a_stop_is_a_success_and_leaves_nothing(service):
    """Every rank is asked once, by dsup alone, and ends in its own time."""
    count = """
asked = []
signal.signal(signal.SIGTERM, lambda *_: asked.append(1))
mark("began")
while not asked:
    signal.sigtimedwait([], 0.1)
signal.sigtimedwait([], 0.3)
mark("asked", str(len(asked)))
"""
    service.configure(FAST_RUN, script=BEGIN + count)
    service.start()
    service.until(lambda: len(service.files("began.*")) == 2)
    service.stop()

    assert service.ends() == ["success 143"]
    assert service.show("ActiveState") == "inactive"
    assert service.processes() == []
    asked = [(service.directory / f"asked.{rank}").read_text() for rank in (0, 1)]
    assert asked == ["1", "1"]


def test_a_run_that_ends_well_is_a_success(service):
    """Also one so short that it is over when systemd hears that it runs."""
    service.configure(FAST_RUN, script="pass")
    service.start()
    service.comes_to(ActiveState="inactive")

    assert service.ends() == ["success 0"]
    assert service.processes() == []


def test_a_failure_of_the_script_is_not_tried_again(service):
    """Exit code 1 is permanent: the unit is failed, and stays so."""
    service.configure(FAST_RUN, script="raise ValueError")
    service.start()
    service.comes_to(ActiveState="failed", SubState="failed")

    assert service.ends() == ["exit-code 1"]


def test_what_may_go_better_is_tried_again(service):
    """A rank that was killed ends the run with 137; systemd starts another."""
    once = """
first = not (here / "before").exists()
(here / "before").touch()
mark("began" if first else "again")
if first:
    os.kill(os.getpid(), signal.SIGKILL)
signal.pause()
"""
    service.configure(script=BEGIN + once)
    service.start()
    service.until(lambda: service.files("again.*") == ["again.0"])

    service.comes_to(ActiveState="active", SubState="running", NRestarts="1")
    assert service.ends() == ["exit-code 137"]


END = """#!/bin/sh
systemd-notify --ready
exit {code}
"""


@pytest.mark.parametrize(
    ("code", "result", "lives"),
    [
        pytest.param(0, "success", 1, id="0: finished"),
        pytest.param(1, "exit-code", 1, id="1: a failure of the script"),
        pytest.param(2, "exit-code", 1, id="2: a wrong call"),
        pytest.param(127, "exit-code", 1, id="127: no such program"),
        pytest.param(130, "exit-code", 1, id="130: Ctrl-C"),
        pytest.param(143, "success", 1, id="143: stopped"),
        pytest.param(137, "exit-code", 5, id="137: killed"),
        pytest.param(193, "exit-code", 5, id="193: node unfit"),
        pytest.param(194, "exit-code", 5, id="194: hang"),
        pytest.param(195, "exit-code", 5, id="195: network, store or node lost"),
    ],
)
def test_the_exit_code_decides_about_another_try(service, code, result, lives):
    """From 128 on the run is started again, five times an hour; below it never."""
    service.launcher(END.format(code=code))
    service.configure()
    service.start()
    service.comes_to(SubState="dead" if result == "success" else "failed")

    assert service.ends() == [f"{result} {code}"] * lives


HUNGRY = """
attempt = os.environ["TORCHELASTIC_RESTART_COUNT"]
mark(f"began{attempt}", str(os.getpid()))
if attempt == "0" and rank == 1:
    while not (here / "eat").exists():
        signal.sigtimedwait([], 0.01)
    eaten = bytearray(400 << 20)
    for at in range(0, len(eaten), 4096):
        eaten[at] = 1
signal.pause()
"""


@pytest.fixture
def pen(service):
    """Give ``pen(pid)``: hold a process to 64 MiB where cgroup v1 counts memory.

    With v2 the unit's own MemoryMax does so.
    """
    parent = service.manager.inside("/run/memory")
    pens = []

    def put(pid):
        if (parent / "memory.limit_in_bytes").exists():
            pens.append(parent / f"dsup-test-{pid}")
            pens[-1].mkdir()
            (pens[-1] / "memory.limit_in_bytes").write_text(str(64 << 20))
            (pens[-1] / "cgroup.procs").write_text(str(pid))

    yield put
    for made in pens:
        service.until(lambda made=made: not (made / "cgroup.procs").read_text())
        made.rmdir()


def test_a_rank_that_the_kernel_kills_does_not_end_the_service(service, pen):
    """The worker group is restarted in place; systemd does not step in."""
    limits = {"MemoryMax": "250M", "MemorySwapMax": "0"}
    options = f"{FAST_RUN}max-restarts = 1\n"
    service.configure(options, script=BEGIN + HUNGRY, **limits)
    service.start()
    service.until(lambda: len(service.files("began0.*")) == 2)
    guard = service.show("MainPID")
    pen(service.outer((service.directory / "began0.1").read_text()))
    (service.directory / "eat").touch()
    service.until(lambda: len(service.files("began1.*")) == 2)

    verdict = service.until(service.verdict)
    assert (verdict["cause"], verdict["first_ranks"]) == ("host_oom", [1])
    assert "SIGKILL" in service.console()
    found = service.show("ActiveState", "SubState", "MainPID", "NRestarts")
    assert found == ["active", "running", guard, "0"]


def test_a_stuck_agent_ends_in_another_start(service):
    """The watchdog leaves it alone while it gives signs; then all are killed."""
    service.configure(FAST_RUN, script=BEGIN + RANKS, WatchdogSec="6")
    service.start()
    began_us = int(service.show("ActiveEnterTimestampMonotonic"))
    service.until(
        lambda: int(service.show("WatchdogTimestampMonotonic")) > began_us + 2_000_000
    )
    assert service.show("ActiveState", "NRestarts") == ["active", "0"]
    service.until(lambda: len(service.files("began.*")) == 2)
    before = set(service.processes())
    service.kill("agent", signal.SIGSTOP)
    service.comes_to(ActiveState="active", SubState="running", NRestarts="1")

    assert service.ends() == ["watchdog 134"]
    assert "the watchdog missed the agent's signs of life" in service.console()
    assert before.isdisjoint(service.processes())


@pytest.mark.parametrize("lost", ["agent", "guard"])
def test_a_killed_supervisor_is_started_again(service, lost):
    """Nothing of the run is left, and the next one goes on with its count."""
    service.configure(FAST_RUN, script=BEGIN + RANKS)
    service.start()
    service.until(lambda: len(service.files("began.*")) == 2)
    service.until(lambda: "logs in" in service.console())
    before = set(service.processes())
    service.kill(lost, signal.SIGKILL)
    service.comes_to(ActiveState="active", SubState="running", NRestarts="1")

    assert before.isdisjoint(service.processes())
    service.until(lambda: "its 1 failed attempt counts on" in service.console())


def test_a_service_without_its_file_says_so(service):
    """A misspelt instance is refused, not tried again."""
    service.configure()
    service.forget()
    service.start()

    assert service.show("ActiveState", "NRestarts") == ["inactive", "0"]
    assert service.show("AssertResult") == "no"
