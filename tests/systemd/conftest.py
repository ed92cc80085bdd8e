"""A real systemd, PID 1 of namespaces of its own, for the tests of the unit."""

import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

UNIT = Path(__file__).parents[2] / "systemd" / "dsup@.service"
BOOT = """
set -e
mount --make-rprivate /
mount -t proc proc /proc
mount -t tmpfs tmpfs /run
kept=0
for place in "$@"; do
    kept=$((kept + 1)); mkdir -p /run/kept/$kept; mount --bind "$place" /run/kept/$kept
done
# Else its tmpfiles service would empty the machine's own.
for place in /tmp /var/tmp /var/log; do mount -t tmpfs tmpfs $place; done
kept=0
for place in "$@"; do
    kept=$((kept + 1)); mkdir -p "$place"; mount --bind /run/kept/$kept "$place"
done
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mkdir -p /run/systemd/system /run/dsup-test
exec env -i container=other PATH=/usr/bin:/bin \\
    /lib/systemd/systemd --system --unit=basic.target --log-target=null
"""
HIDDEN = ("/tmp/", "/var/tmp/", "/run/")  # noqa: S108 (where a checkout may be)
KEPT = sorted(
    {str(Path(place).resolve()) for place in (sys.prefix, *sys.path) if place}
)
"""What Python needs, for where it lies in a place that is hidden."""

NAMESPACES = "--pid --mount --fork --kill-child --cgroup".split()


class System:
    """A booted systemd.

    Attributes:
        root: its root directory, as seen from here.
        pid: its pid, as seen from here.
    """

    def __init__(self, process):
        self._process = process
        self.pid = self._find_pid()
        self.root = Path(f"/proc/{self.pid}/root")
        self.until(lambda: "running" in self.ctl("is-system-running").stdout)

    def ctl(self, *words):
        """Run systemctl inside."""
        inside = ["nsenter", "-t", str(self.pid), "-m", "-p", "-C", "systemctl"]
        return subprocess.run(
            [*inside, *words], capture_output=True, text=True, check=False, timeout=30
        )

    def show(self, unit, name):
        """Return a property of a unit."""
        return self.ctl("show", "-P", name, unit).stdout.strip()

    def until(self, condition, within_s=20):
        """Wait for a condition."""
        nap, end_s = threading.Event(), time.monotonic() + within_s
        while not condition():
            assert self._process.poll() is None, "systemd has ended"
            assert time.monotonic() < end_s, "not in time"
            nap.wait(0.05)

    def _find_pid(self):
        nap, end_s = threading.Event(), time.monotonic() + 10
        path = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        while time.monotonic() < end_s:
            for pid in path.read_text().split():
                if Path(f"/proc/{pid}/comm").read_text().strip() == "systemd":
                    return int(pid)
            nap.wait(0.02)
        pytest.fail("systemd did not start")


@pytest.fixture(scope="session")
def system():
    """Boot a systemd; it and all below it are gone after the tests."""
    kept = [p for p in KEPT if p.startswith(HIDDEN) and Path(p).is_dir()]
    process = subprocess.Popen(
        ["unshare", *NAMESPACES, "sh", "-c", BOOT, "sh", *kept],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield System(process)
    finally:
        process.kill()
        process.wait()


class Job:
    """One instance of the unit as it is shipped, but for where its files are.

    Attributes:
        unit: its name.
    """

    def __init__(self, system, name, script, options="", drop_in=""):
        self.system, self.unit = system, f"dsup@{name}.service"
        # Not below /run itself: what systemd mounted there is another file system.
        files = system.root / "run/dsup-test"
        units = system.root / "run/systemd/system"
        shipped = UNIT.read_text().replace("/etc/dsup/", "/run/dsup-test/")
        (units / "dsup@.service").write_text(shipped)
        more = units / f"{self.unit}.d"
        shutil.rmtree(more, ignore_errors=True)
        more.mkdir()
        (more / "test.conf").write_text(f"[Service]\n{drop_in}\n")
        (files / f"{name}.py").write_text(script)
        (files / f"{name}.toml").write_text(f"nproc = 2\n{options}\n")
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        command = f"DSUP_COMMAND=/run/dsup-test/{name}.py\nPATH={path}\n"
        (files / f"{name}.env").write_text(command)
        system.ctl("daemon-reload")

    def start(self):
        """Start it, without waiting for READY."""
        self.system.ctl("start", "--no-block", self.unit)
        return self

    def __getitem__(self, name):
        """Return one of its properties."""
        return self.system.show(self.unit, name)

    def until(self, **properties):
        """Wait until it has these properties."""
        found = {}

        def there():
            found.update({name: self[name] for name in properties})
            return found == properties

        try:
            self.system.until(there)
        except AssertionError:
            pytest.fail(f"{self.unit} has {found}, not {properties}")

    def pids(self):
        """Return what is alive in its cgroup, as pids inside."""
        group = self["ControlGroup"].lstrip("/")
        told = self.system.root / "sys/fs/cgroup" / group / "cgroup.procs"
        return told.read_text().split() if group and told.exists() else []

    def end(self):
        """Leave nothing behind."""
        self.system.ctl("kill", "--signal=SIGKILL", self.unit)
        self.system.ctl("stop", self.unit)
        self.system.ctl("reset-failed", self.unit)


@pytest.fixture
def job(system, request):
    """Give ``job(script, options, drop_in)``; it ends with the test."""
    made: list[Job] = []

    def make(script, options="", drop_in=""):
        made.append(Job(system, f"job{len(made)}", script, options, drop_in))
        return made[-1]

    yield make
    for each in made:
        each.end()
