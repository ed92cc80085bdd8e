"""``fault_point``: one rank breaks at one step, for real, and nowhere else."""

import os
import re
import select
import signal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsup_runtime.faults import Fault, FaultError, parse_fault

LOOP = """
from dsup_runtime import fault_point
for step in range(4):
    print(step, fault_point("step", step), flush=True)
"""
ALL_STEPS = "0 None\n1 None\n2 None\n3 None\n"
KINDS = "kill stop raise segv oom exit exit0 sleep hang nan enospc".split()
QUIET_S = 0.2


@pytest.mark.parametrize(
    ("kind", "status", "last_words"),
    [
        pytest.param("kill", -signal.SIGKILL, "", id="kill: no word is left"),
        pytest.param("segv", -signal.SIGSEGV, "", id="segv: a real one"),
        pytest.param(
            "raise",
            1,
            "RuntimeError: injected fault at 'step'",
            id="raise: a traceback",
        ),
        pytest.param(
            "enospc", 1, "OSError: [Errno 28] No space left on device", id="disk full"
        ),
        pytest.param("exit", 3, "", id="exit: code 3"),
        pytest.param("exit0", 0, "", id="exit0: too early, but code 0"),
    ],
)
def test_a_rank_ends_at_its_step(run, kind, status, last_words):
    """Each kind that ends a rank does so in its way, before the step is done."""
    result = run(LOOP, env={"DSUP_FAULT": f"{kind}:0@2"})

    assert result[:2] == (status, "0 None\n1 None\n")
    assert last_words in result[2]


def test_a_stopped_rank_goes_on_when_it_is_continued(start):
    """Kind stop freezes the process as SIGSTOP from outside would."""
    worker = start(LOOP, env={"DSUP_FAULT": "stop:0@2"})
    os.waitid(os.P_PID, worker.pid, os.WSTOPPED)
    worker.send_signal(signal.SIGCONT)

    assert worker.finish() == (0, ALL_STEPS, "")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sleep", "hang"])
def test_a_hanging_rank_lives_and_says_nothing(start, kind):
    """The rank stays in its step, asleep, until somebody ends it."""
    worker = start(LOOP, env={"DSUP_FAULT": f"{kind}:0@1"})
    assert worker.stdout.readline() == "0 None\n"

    assert select.select([worker.stdout], [], [], QUIET_S)[0] == []
    stat = Path(f"/proc/{worker.pid}/stat")
    while stat.read_text().rpartition(")")[2].split()[0] != "S":
        os.sched_yield()
    worker.terminate()
    assert worker.finish()[0] == -signal.SIGTERM


def test_nan_is_acted_out_by_the_caller(run):
    """Kind nan is returned, once: only the script can spoil its own numbers."""
    script = LOOP + "print(fault_point('step', 2))"

    assert run(script, env={"DSUP_FAULT": "nan:0@2"}) == (
        0,
        "0 None\n1 None\n2 nan\n3 None\nNone\n",
        "",
    )


def test_a_fault_happens_once(run):
    """A script that survives its fault does not meet it again at the same step."""
    script = """
from dsup_runtime import fault_point
try:
    fault_point("first", 2)
except RuntimeError as error:
    print(error)
print(fault_point("second", 2))
"""
    assert run(script, env={"DSUP_FAULT": "raise:0@2"}) == (
        0,
        "injected fault at 'first'\nNone\n",
        "",
    )


@pytest.mark.parametrize(
    "variables",
    [
        pytest.param({}, id="no fault"),
        pytest.param({"DSUP_FAULT": ""}, id="an empty one"),
        pytest.param({"DSUP_FAULT": "kill:1@2"}, id="another rank"),
        pytest.param(
            {"DSUP_FAULT": "kill:0@2", "RANK": "1", "LOCAL_RANK": "0"},
            id="ranks are global",
        ),
        pytest.param({"DSUP_FAULT": "kill:0@9"}, id="a step that never comes"),
        pytest.param({"DSUP_FAULT": "kill:0@2", "DSUP_ATTEMPT": "1"}, id="restarted"),
        pytest.param(
            {"DSUP_FAULT": "kill:0@2", "TORCHELASTIC_RESTART_COUNT": "1"},
            id="restarted by torchrun",
        ),
    ],
)
def test_others_are_spared(run, variables):
    """A fault is for one rank, one step and the first attempt."""
    assert run(LOOP, env=variables) == (0, ALL_STEPS, "")


def test_a_point_without_a_step_meets_no_fault(run):
    """Where the caller names no step, none can match."""
    script = "from dsup_runtime import fault_point\nprint(fault_point('save'))"

    assert run(script, env={"DSUP_FAULT": "kill:0@0"}) == (0, "None\n", "")


@pytest.mark.parametrize(
    ("value", "why"),
    [
        pytest.param("kill", "rank and step are not two numbers", id="no place"),
        pytest.param("kill:0", "rank and step are not two numbers", id="no step"),
        pytest.param("kill:x@1", "rank and step are not two numbers", id="no number"),
        pytest.param("kill:-1@1", "ranks and steps count from 0", id="negative"),
        pytest.param("melt:0@1", "'melt' is no kind of fault", id="unknown kind"),
        pytest.param("x" * 9999, "is no kind of fault", id="far too long"),
    ],
)
@pytest.mark.parametrize(
    "place",
    [
        pytest.param({}, id="rank 0"),
        pytest.param({"RANK": "3", "DSUP_ATTEMPT": "2"}, id="rank 3, restarted"),
    ],
)
def test_a_wrong_fault_is_refused_in_every_rank(run, value, why, place):
    """A mistyped fault must not look like a fault that was survived."""
    status, told, error = run(LOOP, env={"DSUP_FAULT": value, **place})

    last = error.splitlines()[-1]
    assert (status, told) == (1, "")
    assert "FaultError: cannot inject the fault DSUP_FAULT=" in last
    assert f"because {why}" in last or f"{why} (write" in last
    assert all(kind in last for kind in KINDS)
    assert len(last) < 400


@given(st.text())
def test_any_text_is_a_fault_or_refused(value):
    """No value whatever makes the parser fail in another way."""
    try:
        fault = parse_fault(value)
    except FaultError:
        return
    assert fault.kind in KINDS


@given(st.sampled_from(KINDS), st.integers(0, 1 << 40), st.integers(0, 1 << 60))
def test_every_fault_can_be_written(kind, rank, step):
    """KIND:RANK@STEP names every fault there is."""
    assert parse_fault(f"{kind}:{rank}@{step}") == Fault(kind, rank, step)


def memory_group(pid):
    """Return the directory of a process's memory cgroup."""
    lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    rows = [line.split(":", 2) for line in lines]
    root = Path("/sys/fs/cgroup")
    for _, controllers, path in rows:
        if "memory" in controllers.split(","):
            return root / "memory" / path.lstrip("/")
    return root / rows[-1][2].lstrip("/")


@pytest.fixture
def fault_groups():
    """List the cgroups that a process has left which met its fault."""
    own, pids = memory_group("self"), []

    def left(pid):
        pids.append(pid)
        groups = (parent / f"dsup-fault-{pid}" for parent in (own, own.parent))
        return [group for group in groups if group.exists()]

    if not os.access(own, os.W_OK):
        pytest.skip("needs a memory cgroup that can be written")
    yield left
    for group in (group for pid in set(pids) for group in left(pid)):
        group.rmdir()


def oom_kills(group):
    """Return how many processes the kernel killed in a memory cgroup."""
    for name in ("memory.oom_control", "memory.events"):
        if (group / name).exists():
            rows = (group / name).read_text().splitlines()
            return int(dict(row.split() for row in rows)["oom_kill"])
    raise AssertionError(group)


@pytest.mark.root
@pytest.mark.slow
def test_the_kernel_kills_for_memory_in_a_cgroup_of_its_own(start, run, fault_groups):
    """Kind oom is the kernel's own kill; the next attempt removes what it left."""
    fault = {"DSUP_FAULT": "oom:0@2"}
    rank = start(LOOP, env=fault)
    # Until it is collected nobody else's attempt takes its group for a left one.
    os.waitid(os.P_PID, rank.pid, os.WEXITED | os.WNOWAIT)

    (group,) = fault_groups(rank.pid)
    assert oom_kills(group) == 1
    assert rank.finish() == (-signal.SIGKILL, "0 None\n1 None\n", "")
    assert run(LOOP, env={**fault, "DSUP_ATTEMPT": "1"}) == (0, ALL_STEPS, "")
    assert fault_groups(rank.pid) == []


REFUSED = """
import os, resource
from pathlib import Path
from dsup_runtime import fault_point, oom
def refused(call, *arguments):
    before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        call(*arguments)
    except oom.OomRefusedError as error:
        print(error)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb < 8192
"""


def test_without_rights_the_out_of_memory_kill_is_refused(run):
    """An ordinary user is told so, and not a byte is allocated."""
    script = "if os.geteuid() == 0: os.setuid(65534)\nrefused(fault_point, 'x', 0)"
    status, told, _ = run(REFUSED + script, env={"DSUP_FAULT": "oom:0@0"})

    assert status == 0
    assert told.startswith("cannot inject an out-of-memory kill, because no memory cgr")
    assert re.search("Permission denied|Read-only file system|No such file", told)


@pytest.mark.parametrize("made", [True, False], ids=["plain", "absent"])
def test_a_directory_that_is_no_cgroup_limits_nothing(run, tmp_path, made):
    """Where no cgroup file system is mounted, nothing is made and nothing allocated."""
    own = memory_group("self").relative_to("/sys/fs/cgroup")
    if made:
        (tmp_path / own).mkdir(parents=True)
    files = sorted(tmp_path.rglob("*"))
    call = f"refused(oom.die, Path({str(tmp_path)!r}))"
    status, told, error = run(REFUSED + call)

    assert (status, error) == (0, "")
    assert "because no memory cgroup can be made" in told
    assert sorted(tmp_path.rglob("*")) == files
