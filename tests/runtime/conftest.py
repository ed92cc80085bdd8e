"""Real workers and real heartbeat pages for the tests of the runtime."""

import contextlib
import fcntl
import json
import mmap
import os
import socket
import struct
import subprocess
import sys
from pathlib import Path

import pytest

import dsup_runtime
from dsup_runtime import contract

PACKAGES = str(Path(dsup_runtime.__file__).parents[1])
PATIENCE_S = 15.0
INHERITED = {
    name: value
    for name, value in os.environ.items()
    if name == "PATH" or name.startswith("COVERAGE_")
}
"""All that workers get of the tests' own environment."""


class Page:
    """A heartbeat page as the agent makes it, except for what a test spoils."""

    def __init__(self, *, attempt=0, slots=1, magic=contract.MAGIC, size=None):
        self.fd = os.memfd_create("heartbeats", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self.fd, contract.page_bytes(slots))
        header = {
            contract.HEADER_MAGIC: magic,
            contract.HEADER_ATTEMPT: attempt,
            contract.HEADER_SLOTS: slots,
        }
        for word, value in header.items():
            os.pwrite(self.fd, struct.pack("=q", value), word * contract.WORD_BYTES)
        if size is not None:
            os.ftruncate(self.fd, size)
        fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
        self.words = memoryview(mmap.mmap(self.fd, 0)).cast("q")

    def slot(self, index=0):
        """Return the words of one slot; they are its worker's own memory."""
        first = contract.slot_offset(index)
        return self.words[first : first + contract.SLOT_WORDS]

    def environment(self, slot=0, attempt=0):
        """Return the variables by which a worker finds its slot."""
        return {
            contract.HEARTBEAT: contract.format_heartbeat(self.fd, slot),
            contract.ATTEMPT: str(attempt),
        }


class Worker(subprocess.Popen):
    """A process that runs a script (or a whole command) and is talked to by lines."""

    def __init__(self, script, *, env=None, page=None, pass_fds=(), **popen):
        command = [sys.executable, "-c", script] if isinstance(script, str) else script
        super().__init__(
            command,
            env={
                **INHERITED,
                "PYTHONPATH": PACKAGES,
                **(page.environment() if page else {}),
                **(env or {}),
            },
            pass_fds=((page.fd,) if page else ()) + pass_fds,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **popen,
        )

    def hear(self):
        """Return the next line that the worker prints, decoded from JSON."""
        return json.loads(self.stdout.readline())

    def go_on(self):
        """Let the worker pass the place where it reads a line."""
        self.stdin.write("\n")
        self.stdin.flush()

    def finish(self):
        """Return (exit status, stdout, stderr) once it has ended."""
        stdout, stderr = self.communicate(timeout=PATIENCE_S)
        return self.returncode, stdout, stderr


BARE = os.path.realpath(sys.executable)
"""Outside of any virtual environment, for there is no user's own site within one."""


def run_python(script, environment, fds=(), cwd=None, python=sys.executable):
    """Run a script to its end; its output is text."""
    return subprocess.run(
        [python, "-c", script],
        env={"PATH": os.environ["PATH"], **environment},
        pass_fds=fds,
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=15,
        check=False,
    )


def run_rank(script, *, bootstrap="0", more=(), **where):
    """Run a script as a rank; return its result and the notes that it sent."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with ours, theirs:
        environment = {
            "PYTHONPATH": contract.BOOTSTRAP_DIR,
            contract.BOOTSTRAP: bootstrap,
            contract.NOTES: contract.format_notes(theirs.fileno()),
            **dict(more),
        }
        result = run_python(script, environment, [theirs.fileno()], **where)
        ours.setblocking(False)
        notes = []
        with contextlib.suppress(BlockingIOError):
            while True:
                notes.append(json.loads(ours.recv(contract.NOTE_MAX_BYTES)))
        return result, notes


@pytest.fixture
def make_page():
    """Make heartbeat pages; they go with the test."""
    pages = []

    def make(**spoiled):
        pages.append(Page(**spoiled))
        return pages[-1]

    yield make
    for page in pages:
        os.close(page.fd)


@pytest.fixture
def page(make_page):
    """A sound page of attempt 0 with one slot."""
    return make_page()


@pytest.fixture
def start():
    """Start workers; none outlives the test."""
    workers = []

    def start_worker(script, **options):
        workers.append(Worker(script, **options))
        return workers[-1]

    yield start_worker
    for worker in workers:
        worker.kill()
        worker.communicate(timeout=PATIENCE_S)


@pytest.fixture
def run(start):
    """Run a worker to its end: (exit status, stdout, stderr)."""

    def run_worker(script, **options):
        return start(script, **options).finish()

    return run_worker


@pytest.fixture
def alone():
    """Run a script as Python alone does, with the given variables."""
    return run_python


@pytest.fixture
def told():
    """Run a script as a rank; return its result and the notes that it sent."""
    return run_rank


@pytest.fixture
def bare():
    """Return a Python outside of virtual environments: these have no user site."""
    return BARE


@pytest.fixture
def early(tmp_path):
    """Have code run before the bootstrap; return the variables that see to it."""

    def write(code):
        site = tmp_path / "lib/python{}.{}/site-packages".format(*sys.version_info)
        site.mkdir(parents=True)
        (site / "early.py").write_text(code)
        (site / "early.pth").write_text("import early\n")
        return {"PYTHONUSERBASE": str(tmp_path)}

    return write
