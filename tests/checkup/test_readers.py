"""The readers, on the machine itself and on trees that stand for other machines."""

import os
import socket
import subprocess
import sys
import threading
import time

import pytest

from dsup.checkup.checks.catalogue import CHECKS
from dsup.checkup.finding import judged
from dsup.checkup.readers.cgroups import cgroups
from dsup.checkup.readers.devices import driver, holders, network
from dsup.checkup.readers.interpreter import interpreter
from dsup.checkup.readers.kernel_log import kernel_log_readable
from dsup.checkup.readers.still import glimpse, stuck
from dsup.checkup.readers.storage import middle, space, sync
from dsup.checkup.readers.system import clock, system
from dsup.checkup.readings import Readings
from dsup.linux import usage
from dsup.surroundings import remarks

ME = os.getpid()
LIMIT_S = 600.0


@pytest.fixture
def tree(tmp_path):
    """Give a writer of files below a directory that stands for ``/``; and its path."""

    def write(**files):
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return str(tmp_path)

    return write


@pytest.fixture
def unified(tree):
    """Give a maker of a node with cgroups of version 2, this process in /pod/agent."""

    def make(**files):
        own = "sys/fs/cgroup/pod/agent"
        mounts = "30 24 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
        return tree(
            **{
                "proc/self/mountinfo": mounts,
                f"proc/{ME}/cgroup": "0::/pod/agent\n",
                f"{own}/memory.events": "oom 0\noom_kill 0\n",
                f"{own}/cgroup.procs": "",
                f"{own}/cgroup.subtree_control": "",
                **{f"sys/fs/cgroup/{name}": text for name, text in files.items()},
            }
        )

    return make


def findings(check, **readings):
    """Return state and text of what one check says of some readings."""
    found = judged(CHECKS, Readings(**readings))
    return [(row.state, row.text) for row in found if row.check == check]


def test_a_group_that_dies_as_one_is_found_above_ones_own(unified):
    """memory.oom.group of any cgroup above counts; it is said by doctor and launch."""
    root = unified(**{"pod/memory.oom.group": "1\n", "pod/agent/memory.oom.group": "0"})

    found = cgroups(ME, root)

    path = f"{root}/sys/fs/cgroup/pod/memory.oom.group"
    assert found.oom_group == path
    assert found.counted
    assert findings("oom-group", cgroups=found)[0][0] == "warn"
    (remark,) = remarks(root)
    assert remark.startswith(
        "an OOM kill of one rank will take dsup and all ranks with"
    )
    assert f"because {path} is 1" in remark


def test_a_group_that_may_lose_one_is_not_mentioned(unified):
    """Without memory.oom.group there is nothing to say when a run starts."""
    root = unified(**{"pod/memory.oom.group": "0\n"})

    assert list(remarks(root)) == []
    assert cgroups(ME, root).oom_group == ""


def test_the_limit_of_tasks_is_the_one_that_leaves_least(unified):
    """A limit above may be nearer than one's own."""
    root = unified(
        **{
            "pod/agent/pids.max": "max\n",
            "pod/agent/pids.current": "7\n",
            "pod/pids.max": "100\n",
            "pod/pids.current": "96\n",
        }
    )

    found = cgroups(ME, root)

    assert (found.pids_left, found.pids_max) == (4, 100)
    assert findings("pids-max", cgroups=found) == [
        ("bad", "4 of 100 tasks of the cgroup are left")
    ]


def test_a_node_is_read_by_its_files(tree):
    """What /proc tells: memory, score, Yama, capabilities, core dumps, container."""
    root = tree(
        **{
            "proc/1/comm": "tini\n",
            "proc/meminfo": "MemTotal: 100 kB\nMemAvailable: 3 kB\nHugePages_Free: 0\n",
            "proc/self/oom_score_adj": "985\n",
            "proc/self/status": "Name:\tx\nCapEff:\t0000000000080000\n",
            "proc/sys/kernel/yama/ptrace_scope": "1\n",
            "proc/sys/kernel/core_pattern": "|/usr/bin/apport\n",
            "run/.containerenv": "",
        }
    )

    found = system({"PATH": ""}, root)

    assert (found.memory_kb, found.available_kb, found.swap_kb) == (100, 3, None)
    assert (found.container, found.first) == ("Podman", "tini")
    assert (found.ptrace_scope, found.capabilities >> 19 & 1) == (1, 1)
    assert found.core_pattern == "|/usr/bin/apport"
    assert findings("oom-score", system=found)[0][0] == "warn"
    assert not found.pressure


def test_the_kernel_is_asked_for_its_clock():
    """Asking needs no rights and sets nothing."""
    found = clock()

    assert found.synchronised in {True, False}
    assert found.error_us is not None


@pytest.mark.root
def test_a_full_file_system_is_bad_and_nothing_is_left_in_it(tmp_path):
    """A tmpfs without room and one without inodes: both are told by their reason."""
    where = tmp_path / "full"
    where.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k,nr_inodes=8", "tmpfs", where]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("nothing can be mounted here")
    try:
        (where / "file").write_bytes(b"x" * 65536)
        found = space(str(where))
        assert (found.kind, found.free) == ("tmpfs", 0)
        assert findings("disk", spaces={"runs": found})[0] == (
            "bad",
            f"the run directory {where} (tmpfs) has 0 MiB free",
        )
        assert sync(str(where)) == (None, "no space left on device", "full")
        assert os.listdir(where) == ["file"]
    finally:
        subprocess.run(["umount", where], check=True)


def test_a_directory_that_is_not_there_yet_is_judged_by_the_one_above(tmp_path):
    """It would be made; a file in its place is an error."""
    (tmp_path / "file").touch()

    found = space(str(tmp_path / "new/one"))

    assert found.looked_at == str(tmp_path)
    assert found.free
    assert sync(str(tmp_path / "new/one")).ms is not None
    assert os.listdir(tmp_path) == ["file"]
    wrong = space(str(tmp_path / "file"))
    assert (wrong.error, wrong.whose) == ("not a directory", "job")


def test_after_a_slow_write_no_other_is_tried():
    """Three of two seconds would look like a disk that never answers."""
    times_ms = iter([9.0, 1750.0, 1750.0])

    assert middle(times_ms) == 1750.0
    assert list(times_ms) == [1750.0]
    assert middle(iter([9.0, 3.0, 5.0])) == 5.0


@pytest.mark.root
def test_a_file_system_without_a_size_is_not_full(tmp_path):
    """One of type ramfs says that it has no blocks at all."""
    mount = ["mount", "-t", "ramfs", "ramfs", tmp_path]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("nothing can be mounted here")
    try:
        found = space(str(tmp_path))
    finally:
        subprocess.run(["umount", tmp_path], check=True)

    assert (found.free, found.error) == (None, "")
    assert findings("disk", spaces={"runs": found})[0][0] == "unknown"


def test_devices_are_read_from_sysfs_and_proc(tree):
    """GPUs on the bus, the loaded module, who has a GPU open, interfaces, ports."""
    root = tree(
        **{
            "sys/bus/pci/devices/0000:3b:00.0/vendor": "0x10de\n",
            "sys/bus/pci/devices/0000:3b:00.0/class": "0x030200\n",
            "sys/bus/pci/devices/0000:3c:00.0/vendor": "0x10de\n",
            "sys/bus/pci/devices/0000:3c:00.0/class": "0x068000\n",
            "proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX x86_64 Kernel "
            "Module  550.54.15  Tue Mar  5\nGCC version: 12.2.0\n",
            "proc/driver/nvidia-nvswitch/devices/0000:05:00.0": "",
            "proc/7/comm": "nv-fabricmanage\n",
            "proc/7/stat": "7 (nv-fab) S 1 7 7",
            "proc/8/stat": "8 (a) b) D 1 8 8",
            "proc/8/task/8/stat": "8 (a) b) D 1 8 8",
            "proc/8/stack": "[<0>] down_read+0x1\n[<0>] os_lock+0x1 [nvidia]\n",
            "proc/1/comm": "systemd\n",
            "sys/class/net/ib0/mtu": "",
            "sys/class/infiniband/mlx5_0/ports/1/state": "1: DOWN\n",
        }
    )
    for fd in ("proc/7/fd/3", "proc/8/fd/3", "proc/8/fd/4"):
        os.makedirs(f"{root}/{os.path.dirname(fd)}", exist_ok=True)
        target = f"/dev/nvidia{fd[-1]}" if "/8/" in fd else "/dev/nvidiactl"
        os.symlink(target, f"{root}/{fd}")

    found = driver(root)

    assert (found.on_bus, found.version, found.switches) == (1, "550.54.15", 1)
    assert found.fabric_manager
    assert not found.persistenced
    told = holders(root, 0.2)
    assert told.rows == [(8, "a) b", "D", [3, 4])]
    assert [(pid, driver) for pid, _, driver in told.stuck] == [(8, True)]
    assert network(0, root).interfaces == ["ib0"]
    assert network(0, root).ports == {"mlx5_0/1": {"state": "DOWN"}}


def test_a_port_that_is_taken_is_named_with_its_holder():
    """It is tried as a launch would, and let go again."""
    with socket.create_server(("", 0)) as server:
        number = server.getsockname()[1]
        found = network(number)

    assert findings("master-port", network=found)[0][0] == "warn"
    assert f"(pid {ME}) holds it" in found.port_error
    assert network(number).port_error == ""


@pytest.mark.slow
def test_an_interpreter_says_its_versions_or_why_it_does_not(tmp_path):
    """Torch is looked up where it is installed, and not imported."""
    strange = tmp_path / "python"
    strange.write_text("#!/bin/sh\necho no such thing >&2\nexit 3\n")
    strange.chmod(0o700)

    version = ".".join(map(str, sys.version_info[:3]))
    assert interpreter(sys.executable, os.environ, LIMIT_S).python == version
    assert interpreter(str(strange), os.environ, LIMIT_S).error == "no such thing"
    assert "no such file" in interpreter("/nowhere/python", os.environ, LIMIT_S).error


@pytest.mark.slow
def test_an_interpreter_behind_a_wrapper_is_heard(tmp_path, monkeypatch):
    """What a wrapper prints around it, and what lies beside it, changes nothing."""
    wrapper = tmp_path / "python"
    wrapper.write_text(
        f"#!/bin/sh\nprintf 'module loaded: '\n{sys.executable} \"$@\"\necho bye\n"
    )
    wrapper.chmod(0o700)
    for name in ("platform", "json", "re", "importlib"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit(3)")
    monkeypatch.chdir(tmp_path)

    found = interpreter(str(wrapper), os.environ, LIMIT_S)

    assert found.python == ".".join(map(str, sys.version_info[:3]))
    assert (found.error, found.unclear) == ("", "")


@pytest.mark.parametrize("script", ["exec sleep 1000", "kill -9 $$", "echo hello"])
def test_an_interpreter_that_says_nothing_is_not_called_broken(tmp_path, script):
    """It may be slow, or started by something that takes its answer."""
    silent = tmp_path / "python"
    silent.write_text(f"#!/bin/sh\n{script}\n")
    silent.chmod(0o700)

    found = interpreter(str(silent), os.environ, 0.5)

    assert found.error == ""
    assert found.unclear


def test_who_moves_again_is_not_stuck(tree):
    """State D at two looks is nothing, where it has slept between them."""
    thread = "proc/8/task/8"
    root = tree(**{f"{thread}/stat": "8 (a) D 1", f"{thread}/status": "Name:\ta\n"})
    over = threading.Event()

    def move():
        count = 0
        while not over.is_set():
            count += 1
            part = tree(part=f"Name:\ta\nvoluntary_ctxt_switches:\t{count}\n")
            os.replace(f"{part}/part", f"{root}/{thread}/status")

    mover = threading.Thread(target=move)
    mover.start()
    try:
        assert stuck([8], root, watch_s=100.0) == []
    finally:
        over.set()
        mover.join()


def test_both_doors_of_the_kernel_log_may_be_shut(tmp_path):
    """The journal is asked where the device cannot be read."""
    found = kernel_log_readable(str(tmp_path / "kmsg"), "/nowhere/journalctl")

    assert "there is no" in found.error
    assert "does not start" in found.journal_error


@pytest.mark.slow
def test_who_stands_still_does_so_whatever_its_other_threads_do():
    """One that waits for events beside it takes time of the process's, now and then."""
    code = (
        "import signal, threading\n"
        "def spin():\n"
        "    while True: pass\n"
        "threading.Thread(target=spin, daemon=True).start()\n"
        "signal.pause()\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code])

    def stays():
        """Return whether it is where it was, a tenth of a second of work later."""
        seen, before = glimpse(process.pid), usage.read(process.pid)
        while usage.read(process.pid).cpu_s < before.cpu_s + 0.1:
            assert process.poll() is None
        return seen and seen.state == "S" and glimpse(process.pid) == seen

    try:
        give_up_s = time.monotonic() + 500
        while not stays():
            assert time.monotonic() < give_up_s
    finally:
        process.kill()
        process.wait()
