"""An agent's page with each way to reach it, and real workers on the other side."""

import ctypes
import json
import os
import select
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

import dsup_runtime
from dsup.edges.heartbeat_file import FileCarrier
from dsup.edges.heartbeat_tcp import TcpCarrier
from dsup.edges.heartbeats import Page
from dsup.edges.loop import Loop
from dsup_runtime import contract

PACKAGES = str(Path(dsup_runtime.__file__).parents[1])
PATIENCE_S = 600.0
KINDS = ("page", "file", "tcp")
MNT_DETACH = 2
INHERITED = {
    name: value
    for name, value in os.environ.items()
    if name == "PATH" or name.startswith("COVERAGE_")
}


class Agent:
    """What the agent does for the heartbeats of one attempt, and nothing else."""

    def __init__(self, kind, path, *, attempt=7, slots=2, loop=None):
        self.kind, self.path, self.attempt = kind, path, attempt
        self.said: list[str] = []
        self._closed = False
        self.loop = loop or Loop()
        self.page = Page(attempt, slots)
        if kind == "file":
            self.page.carry(partial(FileCarrier, str(path), 0o600))
        elif kind == "tcp":
            self.page.carry(partial(TcpCarrier, self.loop, self.said.append))

    @property
    def where(self):
        """What the ranks are told, but for their slot."""
        carrier = self.page.carrier
        return carrier.where if carrier else f"fd:{self.page.fd}"

    def environment(self, slot=0):
        """Return the variables by which a worker finds its slot."""
        carrier = self.page.carrier
        return {
            contract.HEARTBEAT: f"{self.where}#{slot}",
            contract.HEARTBEAT_TOKEN: carrier.token if carrier else "",
            contract.ATTEMPT: str(self.attempt),
        }

    def slot(self, index=0):
        """Return a slot's words, as the agent has them now."""
        first = contract.slot_offset(index)
        words = memoryview(self.page.copy()).cast("q").tolist()
        return words[first : first + contract.SLOT_WORDS]

    def close(self):
        """Let the page go, once."""
        if not self._closed:
            self.page.close()
        self._closed = True

    def turn(self, wait_s=0.02):
        """Turn the loop once."""
        self.loop.turn(time.monotonic() + wait_s)

    def until(self, holds):
        """Turn the loop until a condition holds; return its value."""
        end_s = time.monotonic() + PATIENCE_S
        while not (value := holds()):
            assert time.monotonic() < end_s, f"it did not become so; said: {self.said}"
            self.turn()
        return value


class Worker(subprocess.Popen):
    """A process that runs a script and is talked to by lines, while the agent works."""

    def __init__(self, agent, script, slot=0, env=None, **popen):
        self.agent = agent
        super().__init__(
            [sys.executable, "-c", script],
            env={
                **INHERITED,
                "PYTHONPATH": PACKAGES,
                **agent.environment(slot),
                **(env or {}),
            },
            pass_fds=(agent.page.fd,) if agent.page.fd >= 0 else (),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **popen,
        )

    def hear(self):
        """Return the next line that the worker prints, decoded from JSON."""
        end_s = time.monotonic() + PATIENCE_S
        while not select.select([self.stdout.fileno()], [], [], 0)[0]:
            assert time.monotonic() < end_s, "the worker says nothing"
            self.agent.turn()
        line = self.stdout.readline()
        assert line, self.stderr.read()
        return json.loads(line)

    def go_on(self):
        """Let the worker pass the place where it reads a line."""
        self.stdin.write("\n")
        self.stdin.flush()

    def finish(self):
        """Return (exit status, stdout, stderr) once it has ended."""
        end_s = time.monotonic() + PATIENCE_S
        while self.poll() is None:
            assert time.monotonic() < end_s, "the worker does not end"
            self.agent.turn()
        return self.returncode, *self.communicate()


@pytest.fixture
def make_agent(tmp_path):
    """Make agents by kind; their descriptors go with the test."""
    agents = []

    def make(kind, path=None, **how):
        agents.append(Agent(kind, path or tmp_path / "heartbeats", **how))
        return agents[-1]

    yield make
    for agent in agents:
        agent.close()


@pytest.fixture(params=KINDS)
def agent(request, make_agent):
    """Give an agent with two slots, once for each way to reach it."""
    return make_agent(request.param)


@pytest.fixture
def start():
    """Start workers; none outlives the test."""
    workers = []

    def start_worker(agent, script, *args, **options):
        workers.append(Worker(agent, script, *args, **options))
        return workers[-1]

    yield start_worker
    for worker in workers:
        worker.kill()
        worker.communicate(timeout=PATIENCE_S)


@pytest.fixture
def small_disk(tmp_path):
    """Mount a file system of 64 KiB; skip the test where that is refused."""
    libc = ctypes.CDLL(None, use_errno=True)
    path = tmp_path / "small"
    path.mkdir()
    where = os.fsencode(path)
    if libc.mount(b"dsup-test", where, b"tmpfs", 0, b"size=64k"):
        pytest.skip(f"cannot mount: {os.strerror(ctypes.get_errno())}")
    yield path
    libc.umount2(where, MNT_DETACH)
