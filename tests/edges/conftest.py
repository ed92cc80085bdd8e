"""What tests of the edges share: real processes on the other side."""

import json
import os
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest

DRIVER = Path(__file__).with_name("scribe_driver.py")
LIMIT_S = 600


class Agent:
    """A driver process and its console, which the test reads."""

    def __init__(self, run_dir, *, out=None, err=None, speed=1, closed="", **settings):
        self.run_dir = run_dir
        (run_dir / "attempt_0" / "0").mkdir(parents=True, exist_ok=True)
        orders, self.orders = os.pipe()
        self.reports, reports = os.pipe()
        self.console, console = os.pipe()
        settings = {"run_dir": str(run_dir), "local_world_size": 1} | settings
        self.process = subprocess.Popen(
            [
                *("/bin/sh", "-c", f'exec "$@" {closed}', "sh"),
                *(sys.executable, str(DRIVER), str(orders), str(reports)),
                *(str(speed), json.dumps(settings)),
            ],
            stdout=console if out is None else out,
            stderr=console if err is None else err,
            pass_fds=(orders, reports),
        )
        for fd in (orders, reports, console):
            os.close(fd)
        self.heard, self.seen, self.pending = [], bytearray(), b""
        self.open = [self.reports, self.console]

    def order(self, name, *args):
        """Have the driver do something."""
        os.write(self.orders, json.dumps([name, *args]).encode() + b"\n")

    def _pump(self):
        """Take in what console and driver give; a reader of both, as a user's is."""
        ready = select.select(self.open, [], [], LIMIT_S)[0]
        assert ready, f"nothing came in {LIMIT_S} s; reports so far: {self.heard}"
        for fd in ready:
            data = os.read(fd, 1 << 20)
            if not data:
                self.open.remove(fd)
            elif fd == self.console:
                self.seen += data
            else:
                *lines, self.pending = (self.pending + data).split(b"\n")
                self.heard += [json.loads(line) for line in lines]

    def wait_for(self, kind, match=None):
        """Return what the driver reports, from the first report of a kind."""
        while True:
            for report in self.heard:
                if report[0] == kind and match in (None, report[1]):
                    self.heard.remove(report)
                    return report[1:]
            assert self.reports in self.open, f"the driver ended: {self.heard}"
            self._pump()

    def rank(self, command, *, attempt=0, local_rank=0):
        """Start a shell command as a rank; return its pid."""
        directory = self.run_dir / f"attempt_{attempt}" / str(local_rank)
        directory.mkdir(parents=True, exist_ok=True)
        self.order("rank", attempt, local_rank, command)
        return self.wait_for("rank")[1]

    def start(self):
        """Start the scribe; return its pid."""
        self.order("start")
        return self.wait_for("pid")[0]

    def rank_exited(self, name="0/0"):
        """Wait for a rank, by attempt and local rank; return how it ended."""
        return self.wait_for("exited", name)[1]

    def shown(self, until=None):
        """Read the console up to some text, or to its end."""
        while until not in self.seen if until else self.console in self.open:
            self._pump()
        return bytes(self.seen)

    def end(self):
        """End the scribe; return whether it wrote everything."""
        self.order("end")
        (complete,) = self.wait_for("scribe_ended")
        return complete

    def log(self, name="stdout.log", attempt=0, local_rank=0):
        """Return what a rank's log holds."""
        path = self.run_dir / f"attempt_{attempt}" / str(local_rank) / name
        return path.read_bytes() if path.exists() else b""

    def journal(self):
        """Return the lines of the journal."""
        path = self.run_dir / "events.jsonl"
        return path.read_text().splitlines() if path.exists() else []


@pytest.fixture
def scribe_agent(tmp_path):
    """Start an agent that does nothing but have a scribe."""
    started = []

    def start(*, run_dir=tmp_path, **arguments):
        started.append(Agent(run_dir, **arguments))
        return started[-1]

    yield start
    for one in started:
        one.process.kill()
        one.process.wait()
        for fd in (one.orders, one.reports, one.console):
            os.close(fd)


@pytest.fixture
def eventually():
    """Wait for what has no descriptor to wait on: a file another process writes."""

    def wait(holds):
        until = time.monotonic() + LIMIT_S
        while not holds():
            assert time.monotonic() < until, "it did not become so"
            select.select([], [], [], 0.01)

    return wait


@pytest.fixture
def asleep(eventually):
    """Wait until a process has done all that it was about to do, and sleeps.

    Whoever reads its last word from a pipe may be sooner than the kernel's account of
    that, and sooner than what comes next in a script.
    """

    def wait(pid):
        path = Path(f"/proc/{pid}/stat")
        eventually(lambda: path.read_text().rpartition(")")[2].split()[0] == "S")

    return wait
