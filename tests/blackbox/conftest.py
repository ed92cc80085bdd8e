"""Start a launcher as its users do, watch it from outside, and leave nothing behind.

``DSUP_TEST_LAUNCHER`` is the command to test. With ``torchrun`` the rows that torchrun
satisfies prove the harness: options and tests of dsup alone are left out.
"""

import contextlib
import ctypes
import json
import os
import secrets
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

HERE = Path(__file__).parent
REPO = HERE.parent.parent
WORKERS = HERE / "workers"
SOURCES = [str(REPO / "supervisor"), str(REPO / "worker_runtime")]
DSUP = [sys.executable, "-m", "dsup", "launch"]
LAUNCHER = shlex.split(os.environ.get("DSUP_TEST_LAUNCHER", "")) or DSUP
IS_DSUP = "torchrun" not in LAUNCHER[0]
FAST = "--settle 0.2 --backoff 0 --shutdown-timeout 60"
ONLY_DSUP_HAS = ("--settle", "--backoff", "--healthy-after")
MNT_DETACH = 2
LEAST_PORT = 10_000
PATIENCE_S = 600.0
"""For what is to come soon: no machine is so busy that it comes later."""
NOT_OURS = (
    *("PET_", "DSUP_", "TORCHELASTIC_", "OMP_NUM", "MASTER_", "PYTHON", "XDG_"),
    "TORCHINDUCTOR_",  # torch sets one in a process that compiles, such as a test's
)


def pytest_configure(config):
    """Register the marker that tells dsup's promises from torchrun's."""
    config.addinivalue_line("markers", "dsup_only: torchrun is known to do otherwise")


def until(condition, within_s, what):
    """Return the first true value of condition(); fail when the time is over."""
    nap = threading.Event()
    end_s = time.monotonic() + within_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end_s:
            told = what() if callable(what) else what
            pytest.fail(f"not within {within_s} s: {told}")
        nap.wait(0.01)


def read_or_empty(path):
    """Return the bytes of a file of /proc; none if its process has gone."""
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""


def state_of(pid):
    """Return the state letter of a process; empty if it has gone."""
    stat = read_or_empty(f"/proc/{pid}/stat")
    return stat.rpartition(b")")[2].split()[0].decode() if stat else ""


def children_of(pid):
    """Return the pids of a process's children, zombies left out."""
    listed = read_or_empty(f"/proc/{pid}/task/{pid}/children").split()
    return [int(child) for child in listed if state_of(int(child)) not in ("", "Z")]


class Output:
    """What one of the launcher's streams has said so far, read as it comes."""

    def __init__(self, pipe):
        self._said = bytearray()
        self._pipe = pipe
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self):
        while chunk := os.read(self._pipe.fileno(), 1 << 16):
            self._said += chunk

    def text(self):
        """Return all that was said."""
        return bytes(self._said).decode(errors="replace")

    def close(self):
        """Read to the end; what a test leaves behind may hold the stream open."""
        while self._thread.is_alive() and select.select([self._pipe], [], [], 0)[0]:
            self._thread.join(0.01)
        self._thread.join(1)


class Run:
    """One launch: the process, the events its ranks report, and what it left behind."""

    def __init__(self, base):
        self.base = base
        self.logs = base / "logs"
        self.tmp = base / "tmp"
        self.files = base / "files"
        for made in (self.tmp, self.files):
            made.mkdir(mode=0o777)
            made.chmod(0o777)  # a run may be another user's
        self.mark = f"{secrets.randbelow(10**15):015d}"
        self.process = None
        self.started_s = 0.0
        self._events = base / "files" / "events"
        self._events.touch()
        self._events.chmod(0o666)
        self._outputs = []

    def environ(self, extra):
        """Return the launcher's environment: ours without what a launcher reads."""
        clean = {k: v for k, v in os.environ.items() if not k.startswith(NOT_OURS)}
        ours = {
            "DSUP_TEST_EVENTS": str(self._events),
            "DSUP_TEST_MARK": self.mark,
            "PYTHONPATH": os.pathsep.join(SOURCES),
            "TMPDIR": str(self.tmp),
            "HOME": str(self.base),
        }
        return clean | ours | extra

    def start(self, options, *arguments, script=WORKERS / "act.py", **how):
        """Start the launcher on a script.

        Args:
            options: options of the launcher, as typed in a shell.
            *arguments: the script's own.
            script: what to run; None if the options say it.
            **how: ``env`` adds variables, ``wrap`` is a command put in front, ``logs``
                and ``fast`` (true) give the harness's own options, ``cwd``, ``stdin``,
                ``stdout`` and ``stderr`` are Popen's.
        """
        own = f"--log-dir {self.logs} " if how.pop("logs", True) else ""
        own += FAST if how.pop("fast", True) else ""
        words = drop_foreign(shlex.split(f"{own} {options}"))
        target = [] if script is None else [str(script)]
        how.setdefault("stdin", subprocess.DEVNULL)
        how.setdefault("stdout", subprocess.PIPE)
        how.setdefault("stderr", subprocess.PIPE)
        self.started_s = time.monotonic()
        self.process = subprocess.Popen(
            [*how.pop("wrap", ()), *LAUNCHER, *words, *target, *arguments],
            env=self.environ(how.pop("env", {})),
            start_new_session=True,
            **how,
        )
        pipes = filter(None, (self.process.stdout, self.process.stderr))
        self._outputs = list(map(Output, pipes))
        return self

    def events(self, name=""):
        """Return the ranks' events of that name, in the order they happened."""
        lines = read_or_empty(self._events).split(b"\n")[:-1]  # one may be on its way
        parsed = (SimpleNamespace(**json.loads(line)) for line in lines)
        return [event for event in parsed if name in ("", event.name)]

    def emit(self, name):
        """Tell the ranks that something happened."""
        with self._events.open("a") as file:
            file.write(json.dumps({"name": name, "rank": -1, "pid": 0}) + "\n")

    def wait_event(self, name, count=1, within_s=PATIENCE_S):
        """Return the events of that name once there are so many."""

        def seen():
            if len(events := self.events(name)) >= count:
                return events
            ended = self.process.poll()
            assert ended is None, f"ended ({ended}) before {name}: {self.console()}"
            return None

        return until(seen, within_s, lambda: f"{count} x {name}: {self.console()}")

    def signal(self, number):
        """Send the process that was started a signal."""
        self.process.send_signal(number)

    def ended(self, within_s=PATIENCE_S):
        """Return the exit code, as a shell would show it, once the launcher ended."""
        try:
            code = self.process.wait(within_s)
        except subprocess.TimeoutExpired:
            pytest.fail(f"still running after {within_s} s; console: {self.console()}")
        for output in self._outputs:
            output.close()
        return code if code >= 0 else 128 - code

    def elapsed_s(self):
        """Return the time since the start, seconds."""
        return time.monotonic() - self.started_s

    def console(self):
        """Return what the launcher's streams said: standard output, then error."""
        return "".join(output.text() for output in self._outputs)

    def said(self):
        """Return dsup's own lines."""
        lines = self._outputs[-1].text().splitlines()
        return [line for line in lines if line.startswith("dsup: ")]

    def run_dir(self):
        """Return the run directory; there must be exactly one."""
        (directory,) = (path for path in self.logs.iterdir() if path.is_dir())
        return directory

    def journal(self, *kinds):
        """Return the journal's events and commands of those kinds so far."""
        lines = read_or_empty(self.run_dir() / "events.jsonl").split(b"\n")[:-1]
        items = [SimpleNamespace(**json.loads(line)) for line in lines[1:]]
        return [
            item
            for item in items
            if {getattr(item, "event", ""), getattr(item, "command", "")} & {*kinds}
        ]

    def processes(self):
        """Return ``(pid, command line)`` of what belongs to this run and lives."""
        found = []
        for entry in filter(str.isdigit, os.listdir("/proc")):
            line = read_or_empty(f"/proc/{entry}/cmdline")
            ours = self.mark.encode() in line + read_or_empty(f"/proc/{entry}/environ")
            if ours and state_of(entry) not in ("", "Z"):
                found.append((int(entry), line.replace(b"\0", b" ").decode().strip()))
        return found

    def leftovers(self):
        """Return in words all that the run left: processes, files, sockets, memory."""
        left = [f"process {pid}: {line}" for pid, line in self.processes()]
        left += [f"temporary {path}" for path in self.tmp.glob("dsup*")]
        pids = {event.pid for event in self.events()}
        left += [
            f"shared memory {name}"
            for name in os.listdir("/dev/shm")  # noqa: S108, only looked at
            if pids & {int(word) for word in name.split("_") if word.isdigit()}
        ]
        left += [f"socket {path}" for path in self.base.rglob("*") if path.is_socket()]
        return left

    def nothing_left(self, within_s=PATIENCE_S):
        """Fail if anything of the run is still there after that time."""
        until(lambda: not self.leftovers(), within_s, self.leftovers)

    def clean_up(self):
        """Kill all that is left, however the test ended."""
        if self.process is None:
            return
        while left := self.processes():
            for pid, _ in left:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            if self.process.poll() is None:
                self.process.kill()
        self.process.wait()
        for pipe in filter(None, (self.process.stdout, self.process.stderr)):
            pipe.close()


def drop_foreign(words):
    """Return the options without those that another launcher does not know."""
    if IS_DSUP:
        return words
    dropped = {
        index + more
        for index, word in enumerate(words)
        if word in ONLY_DSUP_HAS
        for more in (0, 1)
    }
    return [word for index, word in enumerate(words) if index not in dropped]


@pytest.fixture
def new_run():
    """Give a maker of runs; all of them are cleaned up after the test."""
    runs = []

    def make():
        # Unix sockets allow 107 bytes, so the base is short.
        base = Path(tempfile.mkdtemp(prefix="bb-"))
        base.chmod(0o755)
        runs.append(Run(base))
        return runs[-1]

    yield make
    for run in runs:
        run.clean_up()
        shutil.rmtree(run.base, ignore_errors=True)


@pytest.fixture
def run(new_run):
    """Give one run that is not started yet."""
    return new_run()


@pytest.fixture
def launch(run):
    """Give ``launch(options, *clauses, **how)``, which starts the launcher."""
    return run.start


@pytest.fixture
def proc():
    """Give the views on /proc and the bounded wait that tests use."""
    return SimpleNamespace(
        children_of=children_of, state_of=state_of, until=until, workers=WORKERS
    )


@pytest.fixture
def free_port():
    """Give a maker of ports: of those that nobody gets who asks for just any."""

    def find():
        told = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
        low, high = map(int, told)
        asked_for = [*range(LEAST_PORT, low), *range(high + 1, 1 << 16)]
        while True:
            with socket.socket() as one, contextlib.suppress(OSError):
                one.bind(("", secrets.choice(asked_for or [0])))
                return one.getsockname()[1]

    return find


@pytest.fixture
def compiled(run):
    """Give ``compiled(text)``: the path of a C program of the test's."""
    compiler = shutil.which("cc") or pytest.skip("no C compiler")

    def build(text):
        command = [compiler, "-O1", "-o", run.files / "program", "-x", "c", "-"]
        subprocess.run(command, input=text.encode(), check=True)
        return run.files / "program"

    return build


@pytest.fixture
def mount():
    """Give ``mount(kind, where, options)``; where refused, the test is skipped."""
    libc = ctypes.CDLL(None, use_errno=True)
    mounted = []

    def mount_it(kind, where, options):
        path = os.fsencode(where)
        if libc.mount(b"dsup-test", path, kind.encode(), 0, options.encode()):
            pytest.skip(f"cannot mount: {os.strerror(ctypes.get_errno())}")
        mounted.append(path)

    yield mount_it
    for path in mounted:
        libc.umount2(path, MNT_DETACH)


@pytest.fixture(autouse=True)
def _only_what_this_launcher_can(request):
    """Skip what only dsup promises when another launcher is under test."""
    if not IS_DSUP and request.node.get_closest_marker("dsup_only"):
        pytest.skip("torchrun differs here: this is what dsup must do better")
