"""A real systemd in namespaces of its own, which runs dsup as a service."""

import json
import os
import secrets
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

HERE = Path(__file__).parent
REPO = HERE.parent.parent
UNIT = REPO / "systemd/dsup@.service"
HARDENED = REPO / "systemd/hardened.conf"
USERS = REPO / "systemd/sysusers.d/dsup.conf"
HOMES = REPO / "systemd/tmpfiles.d/dsup.conf"
SOURCES = [str(REPO / "supervisor"), str(REPO / "worker_runtime")]
WITHIN_S = 600
FAST = {"RestartSec": "100ms", "User": "root"}

LAUNCHER = """#!/bin/sh
exec {python} -m dsup "$@"
"""
RMDIR = """
mount -t cgroup2 cgroup2 /mnt
find "/mnt/$1" -depth -type d -exec rmdir {} ';'
"""


def until(condition, what, within_s=WITHIN_S):
    """Return the first true value of condition(); fail when the time is over."""
    nap = threading.Event()
    end_s = time.monotonic() + within_s
    while not (value := condition()):
        if time.monotonic() > end_s:
            pytest.fail(f"not within {within_s} s: {what()}")
        nap.wait(0.02)
    return value


def inner_pid(pid):
    """Return the pid that a process has inside; nothing if it has gone."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return ""
    return status.partition("NSpid:")[2].partition("\n")[0].split()[-1]


class Manager:
    """A systemd that is PID 1 of its own namespaces.

    Attributes:
        shared: a directory that is the same inside and outside.
    """

    def __init__(self, shared):
        self.shared = shared
        self._cgroup = f"dsup-test-{secrets.token_hex(4)}"
        self._log = shared / "systemd.log"
        kept = {os.path.realpath(path) for path in (sys.prefix, REPO, shared)}
        # A test run that is killed takes it along.
        bound = "setpriv --pdeathsig KILL".split()
        apart = (
            "unshare --mount --pid --fork --kill-child --propagation private".split()
        )
        boot = ["sh", HERE / "boot.sh", self._cgroup, USERS, HOMES, *kept]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [*bound, *apart, *boot],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self.pid = 0

    def boot(self):
        """Wait until it is up, and give it the unit under test."""
        until(self._is_up, self._log.read_text)
        shutil.copy(UNIT, self.inside("/run/systemd/system"))

    def _is_up(self):
        assert self._process.poll() is None, self._log.read_text()
        pid = self._process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        self.pid = int(children[0]) if children else 0
        asked = self.run("systemctl", "is-system-running") if self.pid else ""
        return asked == "running"

    def inside(self, path):
        """Return where a path of its own is to be found from outside."""
        return Path(f"/proc/{self.pid}/root{path}")

    def members(self, cgroup):
        """Return the pids, as seen outside, of those in a cgroup; none in no cgroup."""
        listed = self.inside(f"/sys/fs/cgroup{cgroup}/cgroup.procs")
        try:
            return [int(pid) for pid in listed.read_text().split()]
        except OSError:
            return []

    def run(self, *command):
        """Run a command inside and return what it says on standard output."""
        enter = ["nsenter", "--target", str(self.pid), "--mount", "--pid", "--cgroup"]
        done = subprocess.run(
            [*enter, *command],
            capture_output=True,
            check=False,
            text=True,
            timeout=WITHIN_S + 10,
        )
        return done.stdout.strip()

    def close(self):
        """End it and all that it runs; leave no process and no cgroup behind."""
        # Once PID 1 has ended, nothing of its namespace lives, and unshare ends, too.
        os.kill(self.pid or self._process.pid, signal.SIGKILL)
        self._process.wait(WITHIN_S)
        apart = ["unshare", "--mount", "--propagation", "private"]
        subprocess.run(
            [*apart, "sh", "-euc", RMDIR, "sh", self._cgroup],
            check=True,
            timeout=WITHIN_S,
        )


class Service:
    """An instance of dsup@.service."""

    def __init__(self, manager, name):
        self.name = f"dsup@{name}.service"
        self.instance = name
        self.directory = manager.shared / name
        self.directory.mkdir()
        self.move(manager)

    def move(self, manager):
        """Be the instance of another manager."""
        self.manager, name = manager, self.instance
        self._env = manager.inside(f"/etc/dsup/{name}.env")
        self._toml = manager.inside(f"/etc/dsup/{name}.toml")
        self._drop_in = manager.inside(f"/run/systemd/system/{self.name}.d/test.conf")
        self.state = manager.inside(f"/var/lib/dsup/{name}")
        self.launcher(LAUNCHER.format(python=shlex.quote(sys.executable)))

    def launcher(self, text):
        """Make a script the ``dsup`` that the service finds."""
        path = self.directory / "bin/dsup"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    def configure(self, options="", *, script="", **settings):
        """Write what is launched, and settings of the unit that shorten a test.

        Args:
            options: TOML, options of the launcher.
            script: a worker's text; empty for none.
            **settings: of the section Service.
        """
        path = self.directory / "train.py"
        path.write_text(script)
        variables = {
            "PATH": f"{self.directory}/bin:/usr/bin:/bin",
            "PYTHONPATH": os.pathsep.join(SOURCES),
            "HERE": self.directory,
        }
        lines = (f'{name}="{value}"\n' for name, value in variables.items())
        self._env.write_text("".join(lines))
        job = f'script = "{path}"\n' if script else ""
        self._toml.write_text(job + options)
        # Properties go with a unit that nobody needs any more; what it ended as stays.
        ended = f"echo $$SERVICE_RESULT $$EXIT_STATUS >>{self.directory}/ends"
        observed = {
            "StandardOutput": f"append:{self.directory}/console",
            "ExecStopPost": f"/bin/sh -c '{ended}'",
        }
        rows = (FAST | observed | settings).items()
        self._drop_in.parent.mkdir(exist_ok=True)
        self._drop_in.write_text(
            "[Service]\n" + "".join(f"{name}={value}\n" for name, value in rows)
        )
        self.manager.run("systemctl", "daemon-reload")

    def harden(self):
        """Give it the settings that go further."""
        self._drop_in.parent.mkdir(exist_ok=True)
        shutil.copy(HARDENED, self._drop_in.parent)

    def start(self):
        """Start it, and wait as long as ``systemctl start`` does."""
        self.manager.run("systemctl", "start", self.name)

    def stop(self):
        """Stop it, and wait as long as ``systemctl stop`` does."""
        self.manager.run("systemctl", "stop", self.name)

    def journal(self, *matches):
        """Return its entries in the journal that match, each as a dictionary."""
        wanted = ["-u", self.name, "-o", "json", "--no-pager", "-q", *matches]
        said = self.manager.run("journalctl", "--all", *wanted)
        return [json.loads(line) for line in said.splitlines()]

    def verdict(self, attempt=0):
        """Return the verdict on an attempt of its newest run; None if there is none."""
        found = sorted(self.state.glob(f"runs/*/attempt_{attempt}/verdict.json"))
        try:
            return json.loads(found[-1].read_text()) if found else None
        except ValueError:  # it is being written
            return None

    def outer(self, inner):
        """Return the pid, as seen outside, of a process that has this one inside.

        While it is being moved from one cgroup to another it may be seen in neither.
        """

        def found():
            seen = (pid for pid in self.processes() if inner_pid(pid) == str(inner))
            return next(seen, None)

        return self.until(found)

    def kill(self, whom, signum):
        """Send a signal to the ``guard``, its main process, or to its ``agent``."""
        pid = self.outer(self.show("MainPID"))
        if whom == "agent":
            (pid,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        os.kill(int(pid), signum)

    def show(self, *names):
        """Return a property; of several, a list."""
        wanted = [f"--property={name}" for name in names]
        said = self.manager.run("systemctl", "show", *wanted, self.name)
        values = dict(line.split("=", 1) for line in said.splitlines())
        found = [values[name] for name in names]
        return found if len(names) > 1 else found[0]

    def until(self, condition, what=None):
        """Return the first true value of condition(); fail when the time is over."""
        return until(condition, what or self.told)

    def comes_to(self, **properties):
        """Wait until properties have these values."""
        wanted = list(properties.values())
        names = [*properties, "Id"]  # so that there are several
        self.until(lambda: self.show(*names)[:-1] == wanted)

    def told(self):
        """Return in words how it stands and what was said."""
        names = "ActiveState SubState Result NRestarts ExecMainStatus StatusText"
        values = self.show(*names.split())
        return f"{names}: {values}; console: {self.console()}"

    def console(self):
        """Return all that was said on the console."""
        return self._read("console")

    def ends(self):
        """Return how it ended each time: the result, and the guard's exit code."""
        return self._read("ends").splitlines()

    def _read(self, name):
        path = self.directory / name
        return path.read_text() if path.exists() else ""

    def processes(self):
        """Return the pids, as seen outside, of all that lives in its cgroup."""
        cgroup = self.show("ControlGroup")
        top = self.manager.inside(f"/sys/fs/cgroup{cgroup}")
        parts = [".", *(part.name for part in top.glob("*/"))] if cgroup else []
        return [pid for part in parts for pid in self.members(part)]

    def members(self, part):
        """Return the pids, as seen outside, of those in a part of its cgroup."""
        return self.manager.members(f"{self.show('ControlGroup')}/{part}")

    def files(self, pattern):
        """Return the names of the files that its ranks made, sorted."""
        return sorted(path.name for path in self.directory.glob(pattern))

    def forget(self):
        """Take its files away: it can not start any more."""
        for file in (self._env, self._toml):
            file.unlink(missing_ok=True)

    def clean_up(self):
        """End it however the test ended, so that the next one finds a free machine."""
        self.manager.run("systemctl", "kill", "--signal=KILL", self.name)
        self.forget()
        self.stop()
        self.manager.run("systemctl", "reset-failed", self.name)


@pytest.fixture
def boot():
    """Give ``boot()``: boots a systemd, after the end of the one before if any.

    Both see the same directory, and nothing else of the first is left.
    """
    shared = Path(tempfile.mkdtemp(prefix="sd-"))
    running: list[Manager] = []

    def start():
        for made in running:
            made.close()
        running[:] = [Manager(shared)]
        running[0].boot()
        return running[0]

    yield start
    for made in running:
        made.close()
    shutil.rmtree(shared, ignore_errors=True)


@pytest.fixture
def instance():
    """Give the class of what stands for an instance of the service."""
    return Service


@pytest.fixture(scope="session")
def manager():
    """Boot a systemd, once."""
    # Short, for sockets in it; readable, for services of another user.
    shared = Path(tempfile.mkdtemp(prefix="sd-"))
    shared.chmod(0o755)
    made = Manager(shared)
    try:
        made.boot()
        yield made
    finally:
        made.close()
        shutil.rmtree(shared, ignore_errors=True)


@pytest.fixture
def service(manager):
    """Give an instance of the service; nothing of it outlives the test."""
    made = Service(manager, f"job{secrets.token_hex(3)}")
    yield made
    made.clean_up()
