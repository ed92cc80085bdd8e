"""Cgroups of every layout: found, counted, and absent where they cannot be read."""

import contextlib
import os
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

from dsup.linux import cgroup
from dsup.linux.cgroup import Memory

LIMIT_S = 600
PID = 7
V2 = "40 31 0:38 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate"
V1_MEMORY = "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory"
V1_PIDS = "39 31 0:36 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids"
V1_SYSTEMD = "39 31 0:37 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd"
UNIFIED = "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw"
EVENTS = "low 0\nhigh 4\nmax 11\noom 3\noom_kill 2\noom_group_kill 1\n"
PSI = "some avg10={} avg60=0.00 avg300=0.00 total=1\nfull avg10=9.99 avg60=0 total=1\n"


class Tree:
    """A made-up root directory."""

    def __init__(self, root):
        self.root = str(root)

    def write(self, path, text):
        """Write a file."""
        file = Path(self.root + path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def process(self, mounts, told):
        """Say what is mounted, and where the process lives."""
        self.write("/proc/self/mountinfo", "\n".join(mounts) + "\n")
        self.write(f"/proc/{PID}/cgroup", told)

    def groups(self):
        """Return the cgroups of the process."""
        told = cgroup.membership(PID, self.root)
        return cgroup.groups(told, cgroup.mounts(self.root))

    def counters(self):
        """Return its counters, by path below the root and name."""
        found = cgroup.counters(self.groups())
        return {(k[0].removeprefix(self.root), k[1]): v for k, v in found.items()}


@pytest.fixture
def tree(tmp_path):
    """Return a made-up root directory, empty."""
    return Tree(tmp_path)


LAYOUTS = {
    "version 2": ([V2], "0::/job\n", "/sys/fs/cgroup/job", True),
    "version 1": (
        [V1_SYSTEMD, V1_PIDS, V1_MEMORY],
        "9:name=systemd:/x\n8:pids:/y\n4:memory:/job\n",
        "/sys/fs/cgroup/memory/job",
        False,
    ),
    "both, memory in version 1": (
        [V1_MEMORY, UNIFIED],
        "4:memory:/job\n0::/x\n",
        "/sys/fs/cgroup/memory/job",
        False,
    ),
    "both, memory in version 2": (
        [V1_SYSTEMD, UNIFIED],
        "1:name=systemd:/x\n0::/job\n",
        "/sys/fs/cgroup/unified/job",
        True,
    ),
    "several controllers in one hierarchy": (
        ["35 31 0:32 / /cg rw - cgroup cgroup rw,cpu,memory"],
        "4:cpu,memory:/job\n",
        "/cg/job",
        False,
    ),
    "a container sees its own part only": (
        ["35 31 0:32 /docker/f00 /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory"],
        "4:memory:/docker/f00/job\n",
        "/sys/fs/cgroup/memory/job",
        False,
    ),
    "a mount point with a blank": (
        [V2.replace("/sys/fs/cgroup", r"/odd\040place\134")],
        "0::/job\n",
        "/odd place\\/job",
        True,
    ),
    "a colon in the name": ([V2], "0::/job:1\n", "/sys/fs/cgroup/job:1", True),
    "a cgroup removed and made again": (
        [V2],
        "0::/job (deleted)\n",
        "/sys/fs/cgroup/job",
        True,
    ),
    "mounted twice, the second is bare": (
        [V2, V2.replace("/sys/fs/cgroup", "/bare")],
        "0::/job\n",
        "/sys/fs/cgroup/job",
        True,
    ),
}


@pytest.mark.parametrize(
    ("mounts", "told", "directory", "unified"), LAYOUTS.values(), ids=LAYOUTS.keys()
)
def test_the_memory_cgroup_is_found(tree, mounts, told, directory, unified):
    """Whatever the layout, the directory of the process's memory cgroup is known."""
    tree.write(f"{directory}/cgroup.procs", "7\n")
    tree.process(mounts, told)

    found = tree.groups().memory

    assert found.chain[0] == tree.root + directory
    assert found.unified is unified
    assert found.name in told


def test_the_chain_ends_where_the_mount_does(tree):
    """Cgroups above a cgroup are looked at, as far as they are mounted."""
    tree.write("/sys/fs/cgroup/a/b/cgroup.procs", "7\n")
    tree.process([V2], "0::/a/b\n")

    chain = [path.removeprefix(tree.root) for path in tree.groups().memory.chain]

    assert chain == ["/sys/fs/cgroup/a/b", "/sys/fs/cgroup/a", "/sys/fs/cgroup"]


ABSENT = {
    "no such process": ([V2], ""),
    "nothing mounted": ([], "0::/job\n"),
    "not a cgroup file system": (
        ["9 1 0:9 / /sys/fs/cgroup rw - fuse.lxcfs - cgroup rw"],
        "0::/job\n",
    ),
    "outside of the namespace": ([V2], "0::/../job\n"),
    "another part is mounted": ([V2.replace(" / ", " /jo ")], "0::/job\n"),
    "the namespace begins below": ([V2.replace(" / ", " /.. ")], "0::/job\n"),
    "the directory is gone": ([V2], "0::/gone\n"),
    "version 1 without a mount": ([V2], "4:memory:/job\n3:pids:/job\n"),
    "nonsense": ([V2], "::\n0\n\n:\n"),
}


@pytest.mark.parametrize(("mounts", "told"), ABSENT.values(), ids=ABSENT.keys())
def test_what_is_not_to_be_seen_is_absent(tree, mounts, told):
    """A cgroup that cannot be looked at is None, and has no counters; no error."""
    tree.write("/sys/fs/cgroup/job/memory.events", EVENTS)
    tree.process(mounts, told)

    assert tree.groups().memory is None
    assert tree.counters() == {}


def test_version_2_counts_kills(tree):
    """Of memory.events the three that tell of kills are taken."""
    tree.write("/sys/fs/cgroup/job/memory.events", EVENTS)
    tree.process([V2], "0::/job\n")
    path = "/sys/fs/cgroup/job/memory.events"

    assert tree.counters() == {
        (path, "oom"): 3,
        (path, "oom_kill"): 2,
        (path, "oom_group_kill"): 1,
    }


def test_a_cgroup_without_the_controller_is_counted_above(tree):
    """Memory is charged to the nearest cgroup above that has the controller."""
    tree.write("/sys/fs/cgroup/a/memory.events", "oom_kill 5\n")
    tree.write("/sys/fs/cgroup/a/b/cgroup.procs", "7\n")
    tree.process([V2], "0::/a/b\n")

    assert tree.counters() == {("/sys/fs/cgroup/a/memory.events", "oom_kill"): 5}


@pytest.mark.parametrize(
    ("control", "expected"),
    [
        pytest.param(
            "oom_kill_disable 0\nunder_oom 0\noom_kill 4\n",
            ("memory.oom_control", "oom_kill", 4),
            id="since 4.13",
        ),
        pytest.param(
            "oom_kill_disable 0\nunder_oom 0\n",
            ("memory.failcnt", "failcnt", 88),
            id="before",
        ),
    ],
)
def test_version_1_counts_kills(tree, control, expected):
    """Version 1 has its own file; the oldest kernels only count hits of the limit."""
    directory = "/sys/fs/cgroup/memory/job"
    tree.write(f"{directory}/memory.oom_control", control)
    tree.write(f"{directory}/memory.failcnt", "88\n")
    tree.process([V1_MEMORY], "4:memory:/job\n")
    name, counter, count = expected

    assert tree.counters() == {(f"{directory}/{name}", counter): count}


PIDS = {
    "version 1": (
        [V1_PIDS],
        "8:pids:/a/b\n",
        {"/sys/fs/cgroup/pids/a/b/pids.events": 3, "/sys/fs/cgroup/pids/a/x": 4},
        {"/sys/fs/cgroup/pids/a/b/pids.events": 3},
    ),
    "version 2 before 6.11: where the process is": (
        [V2],
        "0::/a/b\n",
        {"/sys/fs/cgroup/a/b/pids.events": 3, "/sys/fs/cgroup/a/pids.events": 4},
        {"/sys/fs/cgroup/a/b/pids.events": 3},
    ),
    "version 2 since 6.11: where the limit is": (
        [V2],
        "0::/a/b\n",
        {
            "/sys/fs/cgroup/a/b/pids.events": 9,
            "/sys/fs/cgroup/a/b/pids.events.local": 0,
            "/sys/fs/cgroup/a/pids.events": 9,
            "/sys/fs/cgroup/a/pids.events.local": 2,
        },
        {
            "/sys/fs/cgroup/a/b/pids.events.local": 0,
            "/sys/fs/cgroup/a/pids.events.local": 2,
        },
    ),
}


@pytest.mark.parametrize(
    ("mounts", "told", "files", "expected"), PIDS.values(), ids=PIDS.keys()
)
def test_refused_forks_are_counted(tree, mounts, told, files, expected):
    """A refused fork is read where this kernel counts it."""
    for path, count in files.items():
        tree.write(path, f"max {count}\n")
    tree.process(mounts, told)

    assert tree.counters() == {(path, "pids_max"): n for path, n in expected.items()}


NONSENSE = ["", "oom_kill\n", "oom_kill x\n", "oom_kill -1\n", "\0\xff\n", "oom 1 2\n"]


@pytest.mark.parametrize("text", NONSENSE)
def test_nonsense_counts_nothing(tree, text):
    """A file of another form is as good as none."""
    tree.write("/sys/fs/cgroup/job/memory.events", text)
    tree.write("/sys/fs/cgroup/job/memory.max", text)
    tree.write("/proc/vmstat", text)
    tree.process([V2], "0::/job\n")

    assert tree.counters() == {}
    assert cgroup.vmstat(tree.root) == {}
    assert cgroup.memory(tree.groups().memory) == Memory()


def test_the_node_counts_kills(tree):
    """One line of vmstat is the count of all OOM kills."""
    tree.write("/proc/vmstat", "nr_free_pages 5\noom_kill 33\nzone_reclaim 0\n")

    assert list(cgroup.vmstat(tree.root).items()) == [
        ((f"{tree.root}/proc/vmstat", "vmstat_oom_kill"), 33)
    ]


LIMITS = {
    "of its own": ({"a/b/memory.max": "4096"}, 4096),
    "one above is lower": ({"a/b/memory.max": "9", "a/memory.max": "8"}, 8),
    "one above, none of its own": ({"a/b/memory.max": "max", "a/memory.max": "8"}, 8),
    "none": ({"a/b/memory.max": "max"}, None),
}


@pytest.mark.parametrize(("files", "limit"), LIMITS.values(), ids=LIMITS.keys())
def test_the_lowest_limit_counts(tree, files, limit):
    """Memory is limited by the tightest of the cgroups above each other."""
    tree.write("/sys/fs/cgroup/a/b/memory.current", "17\n")
    tree.write("/sys/fs/cgroup/a/b/memory.peak", "23\n")
    for path, text in files.items():
        tree.write(f"/sys/fs/cgroup/{path}", f"{text}\n")
    tree.process([V2], "0::/a/b\n")

    assert cgroup.memory(tree.groups().memory) == Memory(limit, 17, 23)


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        pytest.param("33554432", 33554432, id="a limit"),
        pytest.param("9223372036854771712", None, id="none"),
    ],
)
def test_version_1_has_a_number_for_no_limit(tree, limit, expected):
    """The highest possible number means that there is no limit."""
    directory = "/sys/fs/cgroup/memory/job"
    tree.write(f"{directory}/memory.limit_in_bytes", f"{limit}\n")
    tree.write(f"{directory}/memory.usage_in_bytes", "17\n")
    tree.write(f"{directory}/memory.max_usage_in_bytes", "23\n")
    tree.process([V1_MEMORY], "4:memory:/job\n")

    assert cgroup.memory(tree.groups().memory) == Memory(expected, 17, 23)


PRESSURES = {
    "of the cgroup": ({"/sys/fs/cgroup/job/memory.pressure": "12.34"}, 12.34),
    "of the node": ({"/proc/pressure/memory": "0.50"}, 0.5),
    "of the cgroup rather than the node": (
        {"/sys/fs/cgroup/job/memory.pressure": "1.00", "/proc/pressure/memory": "2.00"},
        1.0,
    ),
    "unknown": ({}, None),
}


@pytest.mark.parametrize(
    ("files", "expected"), PRESSURES.values(), ids=PRESSURES.keys()
)
def test_pressure_is_that_of_the_cgroup_where_it_is_known(tree, files, expected):
    """The share of the last ten seconds in which some task waited for memory."""
    tree.write("/sys/fs/cgroup/job/cgroup.procs", "7\n")
    for path, value in files.items():
        tree.write(path, PSI.format(value))
    tree.process([V2], "0::/job\n")

    assert cgroup.pressure(tree.groups().unified, tree.root) == expected


@pytest.fixture
def make():
    """Make a real cgroup that has a controller; return its directory."""
    made = []

    def make_group(controller):
        told = cgroup.membership(os.getpid())
        group = getattr(cgroup.groups(told, cgroup.mounts()), controller)
        top = Path(group.chain[-1]) if group else None
        if top is None or not os.access(top, os.W_OK):
            pytest.skip(f"no cgroup of the {controller} controller can be made")
        given = top / "cgroup.subtree_control"
        if group.unified and controller not in given.read_text().split():
            pytest.skip(f"the {controller} controller is not handed down")
        made.append(Path(tempfile.mkdtemp(prefix="dsup-test-", dir=top)))
        return made[-1]

    yield make_group
    until_s = time.monotonic() + LIMIT_S
    for directory in made:
        # A process that was seen to end may be in it for a moment more.
        while directory.exists() and time.monotonic() < until_s:
            with contextlib.suppress(OSError):
                directory.rmdir()
        assert not directory.exists()


def enter(directory, line):
    """Run a shell line in a cgroup; return the process, which waits for its stdin."""
    return subprocess.Popen(
        ["sh", "-c", f"echo $$ >{directory}/cgroup.procs; {line}; echo ready; read x"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )


@pytest.mark.root
def test_a_real_limit_is_read(make):
    """What the kernel was told is what is found, with what is in use."""
    directory = make("memory")
    unified = (directory / "memory.max").exists()
    limit = directory / ("memory.max" if unified else "memory.limit_in_bytes")
    limit.write_text(str(64 << 20))
    with enter(directory, ":") as process:
        process.stdout.readline()
        told = cgroup.membership(process.pid)
        group = cgroup.groups(told, cgroup.mounts()).memory
        assert group is not None
        found = cgroup.memory(group)
        process.communicate()

    assert group.chain[0] == str(directory)
    assert found.limit_bytes == 64 << 20
    assert found.current_bytes is not None


@pytest.mark.root
def test_a_real_refusal_is_counted(make):
    """A fork beyond pids.max raises the count of refused forks."""
    directory = make("pids")
    (directory / "pids.max").write_text("1")
    unified = (directory.parent / "cgroup.subtree_control").exists()
    told = f"0::/{directory.name}" if unified else f"8:pids:/{directory.name}"
    living = cgroup.groups(told.encode(), cgroup.mounts())
    before = cgroup.counters(living)
    with enter(directory, "(:)") as process:
        process.wait()  # a shell that cannot fork gives up

    (key,) = (key for key in before if key[0].startswith(str(directory)))
    assert key[1] == "pids_max"
    assert (before[key], cgroup.counters(living)[key] >= 1) == (0, True)


def test_the_cgroups_of_this_process_are_read():
    """On this machine, whatever its layout, something counts OOM kills."""
    found = cgroup.groups(cgroup.membership(os.getpid()), cgroup.mounts())
    names = {name for _, name in cgroup.counters(found) | cgroup.vmstat()}

    assert names & {"oom_kill", "vmstat_oom_kill"}
