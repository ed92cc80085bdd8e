"""What a service gives beyond a start: cgroups, rights, the journal, a reboot."""

import contextlib
import os
import time
from pathlib import Path

import pytest

pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.systemd]

CAP_DAC_READ_SEARCH = 1 << 2
CAP_SYSLOG = 1 << 34
LIMIT_S = 1
"""Of systemd, for a stop; dsup asks for more."""

FAST_RUN = """
nproc = 2
settle = 0.2
backoff = 0
shutdown-timeout = 60
"""
BEGIN = """
import os, pathlib, signal, subprocess, sys
here = pathlib.Path(os.environ["HERE"])
rank = int(os.environ["RANK"])
def mark(name, text=""):
    (here / f"new.{rank}").write_text(text)
    (here / f"new.{rank}").rename(here / f"{name}.{rank}")
"""
WITH_A_HELPER = """
helper = subprocess.Popen(["sleep", "600"], start_new_session=True)
mark("began", f"{os.getpid()} {helper.pid}")
signal.pause()
"""


AT_HOME = """
pathlib.Path("~/.triton/cache").expanduser().mkdir(parents=True, exist_ok=True)
"""


def pids_of(service, rank):
    """Return the pids, as seen outside, of a rank and its helper."""
    inner = (service.directory / f"began.{rank}").read_text().split()
    return [service.outer(pid) for pid in inner]


def status(pid, name):
    """Return a line of /proc/PID/status."""
    rest = Path(f"/proc/{pid}/status").read_text().partition(f"{name}:")[2]
    return rest.partition("\n")[0].strip()


def opened(pid):
    """Return what a process has open; some of it may be closed meanwhile."""
    found = set()
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found.add(os.readlink(fd))
    return found


def oom_score(pid):
    """Return whom the kernel kills sooner; 0 of an aide that has gone."""
    try:
        return int(Path(f"/proc/{pid}/oom_score_adj").read_text())
    except OSError:
        return 0


def test_each_rank_has_a_cgroup_of_its_own(service):
    """With all that it started; the agent and what is dsup's live beside them."""
    service.configure(FAST_RUN, script=BEGIN + WITH_A_HELPER)
    service.start()
    service.until(lambda: len(service.files("began.*")) == 2)
    ranks = [pids_of(service, rank) for rank in (0, 1)]
    for rank, pids in enumerate(ranks):
        service.until(
            lambda r=rank, p=pids: set(service.members(f"rank_{r}")) == set(p)
        )
    service.until(lambda: service.members(".") == [])
    agents = service.members("agent")

    assert len(agents) >= 3  # guard, agent, scribe
    assert {oom_score(pid) for pids in ranks for pid in pids} == {500}
    # Not every machine lets even root go below 0.
    assert max(map(oom_score, agents)) <= 0
    top = service.manager.inside(f"/sys/fs/cgroup{service.show('ControlGroup')}")
    service.stop()
    assert service.ends() == ["success 143"]
    service.until(lambda: not top.exists())


FLEEING = """
import ctypes
attempt = os.environ["TORCHELASTIC_RESTART_COUNT"]
mark(f"began{attempt}", str(os.getpid()))
if attempt == "0" and rank == 0:
    while not (here / "die").exists():
        signal.sigtimedwait([], 0.01)
    os._exit(3)
signal.pause()
"""


def test_the_ranks_of_the_next_attempt_get_new_ones(service):
    """The cgroups of an attempt that is over are gone before."""
    service.configure(f"{FAST_RUN}max-restarts = 1\n", script=BEGIN + FLEEING)
    service.start()
    service.until(lambda: len(service.files("began0.*")) == 2)
    service.until(lambda: service.members(".") == [])
    (service.directory / "die").touch()
    service.until(lambda: len(service.files("began1.*")) == 2)
    inner = [(service.directory / f"began1.{rank}").read_text() for rank in (0, 1)]

    for rank, pid in enumerate(inner):
        service.until(
            lambda r=rank, p=pid: service.members(f"rank_{r}") == [service.outer(p)]
        )


def test_the_agent_alone_reads_the_kernel_log(service):
    """As its own user, hardened: CAP_SYSLOG is no rank's; what else is given stays.

    That user has a home, where programs keep their caches.
    """
    service.harden()
    # The second is what the interpreter of a test may need to be read by this user.
    rights = "CAP_SYSLOG CAP_DAC_READ_SEARCH"
    service.configure(
        FAST_RUN,
        script=BEGIN + AT_HOME + WITH_A_HELPER,
        User="dsup",
        AmbientCapabilities=rights,
        CapabilityBoundingSet=rights,
    )
    service.directory.chmod(0o777)
    service.start()
    service.until(lambda: len(service.files("began.*")) == 2)
    guard = service.outer(service.show("MainPID"))
    (agent,) = Path(f"/proc/{guard}/task/{guard}/children").read_text().split()
    rank, helper = pids_of(service, 1)

    assert service.state.stat().st_uid == int(status(rank, "Uid").split()[0]) > 0
    assert int(status(agent, "CapEff"), 16) & CAP_SYSLOG
    service.until(lambda: "/dev/kmsg" in opened(agent))
    for pid in (rank, helper):
        for name in ("CapEff", "CapPrm", "CapInh", "CapAmb"):
            assert int(status(pid, name), 16) == CAP_DAC_READ_SEARCH
    service.until(lambda: set(service.members("rank_1")) == {rank, helper})


SAYS = """
print(f"one of {rank}")
print(f"two of {rank}", file=sys.stderr, end="")
sys.stderr.flush()
mark("said")
if rank == 0:
    signal.pause()
while not (here / "said.0").exists():
    signal.sigtimedwait([], 0.01)
os._exit(3)
"""


def test_the_journal_knows_the_ranks(service):
    """``journalctl DSUP_RANK=1`` shows its lines; a verdict is an entry with fields."""
    service.configure(FAST_RUN, script=BEGIN + SAYS, StandardOutput="journal")
    service.start()
    service.comes_to(ActiveState="failed")
    service.manager.run("journalctl", "--sync")
    mine = service.journal("DSUP_RANK=1", "DSUP_STREAM=stdout")
    errors = service.journal("DSUP_RANK=0", "DSUP_STREAM=stderr")
    (verdict,) = service.journal("DSUP_CAUSE=python_exception")
    everything = [entry["MESSAGE"] for entry in service.journal()]

    assert ["one of 1" in entry["MESSAGE"] for entry in mine] == [True]
    assert ["two of 0" in entry["MESSAGE"] for entry in errors] == [True]
    assert (errors[0]["PRIORITY"], errors[0]["DSUP_ATTEMPT"]) == ("5", "0")
    assert (verdict["PRIORITY"], verdict["DSUP_RANK"]) == ("3", "1")
    assert verdict["DSUP_CERTAINTY"] in {"proven", "likely", "guess"}
    assert len(verdict["MESSAGE"]) <= 200
    assert sum("one of 0" in text for text in everything) == 1


LOOP = """
import dsup_runtime as rt
start = int((os.environ["DSUP_RESUME_FROM"] or "/step_0").rpartition("_")[2])
mark("began", str(start))
for step in range(start + 1, 10**9):
    signal.sigtimedwait([], 0.01)
    rt.beat(step)
    ends = rt.should_stop(step)
    if rank == 0 and (step % 10 == 0 or ends):
        if ends:
            mark("saves")
            while not (here / "saved").exists():
                signal.sigtimedwait([], 0.01)
        (here / "part").write_text(str(step))
        (here / "part").rename(here / f"step_{step}")
    if ends:
        break
"""


def checkpoints(service):
    """Return the steps of its checkpoints."""
    return sorted(int(name.rpartition("_")[2]) for name in service.files("step_*"))


def test_a_stop_waits_for_the_last_checkpoint(service):
    """As long as --shutdown-timeout says, also where systemd's own limit is lower."""
    options = f"{FAST_RUN}checkpoint-glob = '{service.directory}/step_*'\n"
    service.configure(
        options,
        script=BEGIN + LOOP,
        TimeoutStopSec=str(LIMIT_S),
    )
    service.start()
    service.until(lambda: checkpoints(service))
    service.manager.run("systemctl", "stop", "--no-block", service.name)
    service.until(lambda: service.files("saves.*"))
    before = checkpoints(service)
    over_s = time.monotonic() + 2 * LIMIT_S
    service.until(lambda: time.monotonic() > over_s)
    assert service.show("ActiveState") == "deactivating"
    (service.directory / "saved").touch()
    service.comes_to(ActiveState="inactive")

    assert service.ends() == ["success 143"]
    assert checkpoints(service)[-1] > before[-1]


def test_a_node_that_boots_again_goes_on(boot, instance):
    """From the newest checkpoint, by nothing but the start of its service."""
    service = instance(boot(), "job")
    options = f"{FAST_RUN}checkpoint-glob = '{service.directory}/step_*'\n"
    script = BEGIN + LOOP
    service.configure(options, script=script)
    service.start()
    service.until(lambda: checkpoints(service)[-1:] > [50])
    again = boot()
    newest = checkpoints(service)[-1]
    (service.directory / "began.0").unlink()
    service.move(again)
    service.configure(options, script=script)
    service.start()
    service.until(lambda: service.files("began.0"))

    assert int((service.directory / "began.0").read_text()) == newest
