"""Counters: what rose during an attempt, whose it is, and what cannot be known."""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from dsup.attribution.timeline import Counter
from dsup.edges.counters import Counters
from dsup.linux import cgroup

V1 = (
    "35 31 0:32 / /m rw - cgroup cgroup rw,memory\n"
    "39 31 0:36 / /p rw - cgroup cgroup rw,pids\n"
)
V2 = "40 31 0:38 / /cg rw - cgroup2 cgroup2 rw\n"


class Node:
    """A made-up machine."""

    def __init__(self, root, mounts):
        self.root = str(root)
        self.write("/proc/self/mountinfo", mounts)
        self.counters = Counters(self.root)

    def write(self, path, text):
        """Write a file."""
        file = Path(self.root + path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def live(self, pid, name):
        """Have a process live in a cgroup of version 2."""
        self.write(f"/proc/{pid}/cgroup", f"0::{name}\n")

    def kills(self, name, count):
        """Have a cgroup of version 2 count OOM kills."""
        self.write(f"/cg{name}/memory.events", f"oom 0\noom_kill {count}\n")

    def node_kills(self, count):
        """Have the node count OOM kills."""
        self.write("/proc/vmstat", f"oom_kill {count}\n")

    def risen(self):
        """Return what has risen, with paths below the root."""
        return [
            counter._replace(where=counter.where.removeprefix(self.root))
            for counter in self.counters.risen()
        ]


@pytest.fixture
def node(tmp_path):
    """Return a made-up machine with cgroups of version 2."""
    return Node(tmp_path, V2)


def test_nothing_rose_in_a_quiet_attempt(node):
    """Numbers from before the start are no evidence."""
    node.live(7, "/job")
    node.kills("/job", 5)
    node.node_kills(9)
    node.counters.snapshot({0: 7})

    assert node.risen() == []


def test_a_kill_in_the_ranks_cgroup(node):
    """The cgroup's own count and the node's rise; the first says whose it is."""
    node.live(7, "/a")
    node.live(8, "/b")
    node.kills("/a", 5)
    node.kills("/b", 0)
    node.node_kills(9)
    node.counters.snapshot({0: 7, 1: 8})
    node.kills("/a", 6)
    node.node_kills(10)

    assert set(node.risen()) == {
        Counter("oom_kill", "/cg/a/memory.events", 5, 6, (0,)),
        Counter("vmstat_oom_kill", "/proc/vmstat", 9, 10),
    }
    assert node.counters.cgroups == {0: "/a", 1: "/b"}


def test_a_cgroup_of_all_ranks_names_none(node):
    """A counter that all ranks share tells nothing of any one of them."""
    for pid in (7, 8):
        node.live(pid, "/job")
    node.kills("/job", 0)
    node.counters.snapshot({0: 7, 1: 8})
    node.kills("/job", 1)

    assert node.risen() == [Counter("oom_kill", "/cg/job/memory.events", 0, 1)]


def test_a_cgroup_that_is_removed_keeps_what_it_counted(node):
    """A rank's own is gone when its attempt is judged; its last number was read."""
    node.live(7, "/job/rank_0")
    node.kills("/job/rank_0", 0)
    node.counters.snapshot({0: 7})
    node.kills("/job/rank_0", 1)
    node.counters.note_death(0, 7)
    shutil.rmtree(f"{node.root}/cg/job/rank_0")

    assert node.risen() == [Counter("oom_kill", "/cg/job/rank_0/memory.events", 0, 1)]


def test_ranks_with_cgroups_of_their_own_share_the_one_above(node):
    """What all of them use is counted where they all live."""
    for pid in (7, 8):
        node.live(pid, f"/job/rank_{pid}")
        node.write(f"/cg/job/rank_{pid}/memory.current", "1\n")
    node.write("/cg/job/memory.current", "300\n")
    node.write("/cg/job/memory.max", "1000\n")
    node.counters.snapshot({0: 7, 1: 8})

    assert node.counters.memory() == (300, 1000)


def test_a_limit_above_some_ranks_names_them(node):
    """Of a pids limit of a cgroup above, all ranks below it are concerned."""
    for pid, name in (7, "/a/x"), (8, "/a/y"), (9, "/b"):
        node.live(pid, name)
        node.write(f"/cg{name}/pids.events.local", "max 0\n")
    node.write("/cg/a/pids.events.local", "max 2\n")
    node.counters.snapshot({0: 7, 1: 8, 2: 9})
    node.write("/cg/a/pids.events.local", "max 3\n")

    assert node.risen() == [
        Counter("pids_max", "/cg/a/pids.events.local", 2, 3, (0, 1))
    ]


def test_a_counter_that_fell_is_no_evidence(node):
    """A cgroup that was made anew counts from 0, and has not risen."""
    node.live(7, "/job")
    node.kills("/job", 5)
    node.counters.snapshot({0: 7})
    node.kills("/job", 1)

    assert node.risen() == []


def test_a_move_that_was_seen_counts_from_then_on(node):
    """What a cgroup had counted before a rank entered it is not the rank's."""
    node.live(7, "/")
    node.kills("/other", 7)
    node.counters.snapshot({0: 7})
    node.live(7, "/other")
    node.counters.look()
    node.kills("/other", 8)
    node.counters.note_death(0, 7)

    assert node.risen() == [Counter("oom_kill", "/cg/other/memory.events", 7, 8)]
    assert node.counters.cgroups == {0: "/other"}


MARK = " (entered after the start, counted from 0)"


def test_a_move_seen_at_death_counts_from_zero_and_says_so(node):
    """A cgroup made for the rank after the start had counted nothing before."""
    node.live(7, "/")
    node.counters.snapshot({0: 7})
    node.live(7, "/new")
    node.kills("/new", 1)
    node.counters.note_death(0, 7)

    assert node.risen() == [Counter("oom_kill", f"/cg/new/memory.events{MARK}", 0, 1)]
    assert node.counters.cgroups == {0: "/new"}


def test_a_move_to_where_another_rank_is_counts_as_for_that_one(node):
    """A cgroup that is known is not new."""
    node.live(7, "/")
    node.live(8, "/old")
    node.kills("/old", 7)
    node.counters.snapshot({0: 7, 1: 8})
    node.live(7, "/old")
    node.counters.note_death(0, 7)

    assert node.risen() == []


def test_of_a_cgroup_that_was_removed_the_last_number_counts(node):
    """A manager may remove the cgroup of a rank as soon as it is empty."""
    node.live(7, "/")
    node.counters.snapshot({0: 7})
    node.live(7, "/new")
    node.kills("/new", 1)
    node.counters.note_death(0, 7)
    shutil.rmtree(f"{node.root}/cg/new")

    assert [(c.before, c.after) for c in node.risen()] == [(0, 1)]


def test_of_the_dead_version_1_tells_nothing(tmp_path):
    """There every zombie seems to live in the root cgroup: the last look stands."""
    node = Node(tmp_path, V1)
    node.write("/proc/7/cgroup", "8:pids:/job\n4:memory:/job\n")
    for name in "", "/job":
        node.write(f"/m{name}/memory.oom_control", "oom_kill 3\n")
        node.write(f"/p{name}/pids.events", "max 3\n")
    node.counters.snapshot({0: 7})
    node.write("/proc/7/cgroup", "8:pids:/\n4:memory:/\n")
    node.write("/m/job/memory.oom_control", "oom_kill 4\n")
    node.counters.note_death(0, 7)

    assert node.risen() == [Counter("oom_kill", "/m/job/memory.oom_control", 3, 4)]
    assert node.counters.cgroups == {0: "/job"}


READABLE = {
    "the node's count suffices": (True, [], True),
    "each rank's cgroup does as well": (False, ["/a", "/b"], True),
    "one rank's is not to be read": (False, ["/a"], False),
    "nothing is to be read": (False, [], False),
}


@pytest.mark.parametrize(
    ("vmstat", "groups", "expected"), READABLE.values(), ids=READABLE.keys()
)
def test_unchanged_means_something_only_where_it_could_be_read(
    node, vmstat, groups, expected
):
    """Only if every kill would have been counted does no count mean no kill."""
    for pid, name in (7, "/a"), (8, "/b"):
        node.live(pid, name)
        node.write(f"/cg{name}/cgroup.procs", "")
    for name in groups:
        node.kills(name, 0)
    if vmstat:
        node.node_kills(0)
    node.counters.snapshot({0: 7, 1: 8})

    assert node.counters.readable is expected


def test_without_a_snapshot_nothing_is_known(node):
    """An attempt that never started its ranks has no counters, and no error."""
    node.counters.note_death(0, 7)

    assert not node.counters.readable
    assert node.risen() == []
    assert node.counters.pressure() is None
    assert node.counters.limit_bytes(0) is None


def test_the_highest_pressure_and_each_limit(node):
    """Pressure is the attempt's, a limit is a rank's."""
    for pid, name, limit in (7, "/a", "4096"), (8, "/b", "max"):
        node.live(pid, name)
        node.write(f"/cg{name}/memory.max", limit)
    node.write("/cg/a/memory.pressure", "some avg10=1.50 avg60=0.00\n")
    node.write("/cg/b/memory.pressure", "some avg10=31.50 avg60=0.00\n")
    node.counters.snapshot({0: 7, 1: 8})

    assert node.counters.pressure() == 31.5
    assert [node.counters.limit_bytes(rank) for rank in (0, 1)] == [4096, None]


MIB = 1 << 20
HUNGRY = """
import sys
print("ready", flush=True)
for line in sys.stdin:
    if line.startswith("/"):
        open(line.strip() + "/cgroup.procs", "w").write("0")
        print("moved", flush=True)
    else:
        eaten = b"x" * (256 << 20)
"""


@pytest.fixture
def small_cgroup(eventually):
    """Make a real memory cgroup of 32 MiB without swap; return its directory."""
    told = cgroup.membership(os.getpid())
    group = cgroup.groups(told, cgroup.mounts()).memory
    top = Path(group.chain[-1]) if group else None
    if top is None or not os.access(top, os.W_OK):
        pytest.skip("no memory cgroup can be made")
    if group.unified and "memory" not in (top / "cgroup.subtree_control").read_text():
        pytest.skip("the memory controller is not handed down")
    directory = Path(tempfile.mkdtemp(prefix="dsup-test-", dir=top))
    limits = ("memory.max", 32), ("memory.swap.max", 0), ("memory.limit_in_bytes", 32)
    for name, size in (*limits, ("memory.memsw.limit_in_bytes", 32)):
        if (directory / name).exists():
            (directory / name).write_text(str(size * MIB))
    yield directory

    def removed():
        """A process that was seen to end may be in it for a moment more."""
        with contextlib.suppress(OSError):
            directory.rmdir()
        return not directory.exists()

    eventually(removed)


@pytest.fixture
def hungry():
    """Start processes that move or eat as they are told."""
    started = []

    def start():
        process = subprocess.Popen(
            [sys.executable, "-c", HUNGRY],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        assert started[-1].stdout.readline() == "ready\n"
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def tell(process, line):
    """Tell a process what to do."""
    process.stdin.write(f"{line}\n")
    process.stdin.flush()


@pytest.mark.root
@pytest.mark.parametrize("seen", ["before the snapshot", "by a later look"])
def test_a_real_kill_is_counted(hungry, small_cgroup, seen):
    """The kernel kills a rank for memory: its cgroup and the node have counted it."""
    victim, other = hungry(), hungry()
    counters, pids = Counters(), {0: other.pid, 1: victim.pid}
    if seen == "by a later look":
        counters.snapshot(pids)
    tell(victim, small_cgroup)
    assert victim.stdout.readline() == "moved\n"
    if seen == "by a later look":
        counters.look()
    else:
        counters.snapshot(pids)
    tell(victim, "eat")
    os.waitid(os.P_PID, victim.pid, os.WEXITED | os.WNOWAIT)
    counters.note_death(1, victim.pid)

    risen = {counter.name: counter for counter in counters.risen()}
    kill = risen["oom_kill"]
    assert kill.where.startswith(f"{small_cgroup}/")
    assert (kill.before, kill.after, kill.ranks) == (0, 1, (1,))
    assert risen["vmstat_oom_kill"].after > risen["vmstat_oom_kill"].before
    assert counters.cgroups[1] == f"/{small_cgroup.name}"
    assert counters.limit_bytes(1) == 32 * MIB


@pytest.mark.root
def test_a_kill_by_somebody_is_not_counted(hungry, small_cgroup):
    """SIGKILL from anybody but the kernel leaves the cgroup's count as it was."""
    victim = hungry()
    tell(victim, small_cgroup)
    assert victim.stdout.readline() == "moved\n"
    counters = Counters()
    counters.snapshot({0: victim.pid})
    victim.kill()
    os.waitid(os.P_PID, victim.pid, os.WEXITED | os.WNOWAIT)
    counters.note_death(0, victim.pid)

    own = [counter for counter in counters.risen() if counter.name == "oom_kill"]
    assert own == []
    assert counters.readable
