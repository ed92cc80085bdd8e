"""A run of eight ranks with a fault every 20 s, of all kinds: dsup stays as it was.

``DSUP_TEST_SOAK_MINUTES`` says how long it goes on; an hour is what it is for. With
``DSUP_TEST_SOAK_LOG`` each fault's measurements are one JSON line in that file, with
``DSUP_TEST_SOAK_EVERY_S`` faults come faster.
"""

import json
import os
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from dsup import control_client
from dsup.drill.place import Place, agent_of, exit_code
from dsup.drill.scenarios import SCENARIOS
from dsup.linux import proc
from dsup.linux.libc import become_subreaper

MINUTES = float(os.environ.get("DSUP_TEST_SOAK_MINUTES", "0"))
LOG = os.environ.get("DSUP_TEST_SOAK_LOG", os.devnull)
RANKS = 8
EVERY_S = float(os.environ.get("DSUP_TEST_SOAK_EVERY_S", "20"))
HEALTHY_S = 3
RESTARTS = 3
WITHIN_S = 120.0
OPTIONS = (
    *("--nproc", str(RANKS), "--max-restarts", str(RESTARTS), "--backoff", "0"),
    *("--healthy-after", str(HEALTHY_S), "--hang-after", "init=300,train=4"),
    *("--shutdown-timeout", "5"),
)
FAULTS = [scenario for scenario in SCENARIOS if scenario.harmed == "rank"]
GROWTH_KB = 4096
GROWTH_FDS = 4
OWN_FILES = 5
"""In the run directory beside attempts: run.json, journal, socket, and two spare."""

OF_AN_ATTEMPT = 8 * RANKS + 8
"""Files of one attempt at most: logs with their index, stacks, notes, and a few."""

pytestmark = [
    pytest.mark.soak,
    pytest.mark.slow,
    pytest.mark.timeout(MINUTES * 60 + 600),
    pytest.mark.skipif(
        not MINUTES, reason="by hand: DSUP_TEST_SOAK_MINUTES is not set"
    ),
]


@pytest.fixture
def place(tmp_path):
    """Give the place of a drill; nothing of it outlives the test."""
    become_subreaper()
    made = Place(str(tmp_path / "soak"), os.environ, threading.Event())
    yield made
    made.clear()
    made.forget_groups()


class Soak:
    """The run under test, and what is measured of dsup's own processes."""

    def __init__(self, place):
        self.place = place
        self.job = place.launch(*OPTIONS, job=("0.1",))
        self.statuses = 0
        self.samples = []
        self.wrong = []
        place.until(lambda: place.told("ready"), "it ran", self.job, WITHIN_S)
        [directory] = place.run_dirs()
        self.directory = Path(directory)

    def status(self):
        """Return what the agent says of the run."""
        path = control_client.socket_of(str(self.directory), {})
        self.statuses += 1
        return control_client.ask(path, {"ask": "status"})

    def harm(self, number):
        """Harm a rank as the scenario of that number says; note what dsup says."""
        scenario = FAULTS[number % len(FAULTS)]
        fixed = scenario.expected.resumes == "before"
        victim = 0 if fixed else number % RANKS
        told = Path(self.place.home, "told.jsonl")
        told.write_text("")  # nobody tells anything while all is well
        self.place.order(str(victim), scenario.name)
        wait = self.place.until
        wait(lambda: self.place.told("ready"), scenario.name, self.job, WITHIN_S)
        verdict = self.verdict(number)
        expected = (scenario.expected.cause, [victim])
        if (verdict["cause"], verdict["first_ranks"]) != expected:
            self.wrong.append((number, scenario.name, victim, verdict["summary"]))
        return scenario.name

    def verdict(self, attempt):
        """Return the verdict of an attempt."""
        path = self.directory / f"attempt_{attempt}" / "verdict.json"
        self.place.until(path.exists, f"there was {path}", self.job, WITHIN_S)
        return json.loads(path.read_text())

    def measure(self, name):
        """Take a sample of what could leak."""
        status = self.status()
        ranks = {row["pid"] for row in status["ranks"]}
        agent = agent_of(self.job) or 0
        aides = {pid for pid in proc.children(agent) if proc.is_alive(pid)} - ranks
        pids = {"guard": self.job.pid, "agent": agent}
        pids |= {f"aide {n}": pid for n, pid in enumerate(sorted(aides))}
        files = [path for path in self.directory.rglob("*") if path.is_file()]
        sample = SimpleNamespace(
            name=name,
            attempt=status["attempt"],
            restarts=status["restarts"],
            kb={who: rss_kb(pid) for who, pid in pids.items()},
            fds={who: len(os.listdir(f"/proc/{pid}/fd")) for who, pid in pids.items()},
            processes=len(self.place.processes()),
            temporary=len(os.listdir(Path(self.place.home, "tmp"))),
            files=len(files),
            bytes=sum(path.stat().st_size for path in files),
            checkpoints=len(os.listdir(self.place.checkpoints)),
        )
        self.samples.append(sample)
        with Path(LOG).open("a") as log:
            log.write(json.dumps(vars(sample) | {"wrong": self.wrong}) + "\n")

    def rest(self, until_s):
        """Ask for the status every second until then."""
        while time.monotonic() < until_s:
            assert self.job.poll() is None, "the run ended"
            self.status()
            threading.Event().wait(min(1.0, max(0.0, until_s - time.monotonic())))


def rss_kb(pid):
    """Return the resident memory of a process, KiB."""
    for line in proc.read_text(f"/proc/{pid}/status").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    return 0


def grown(samples, read):
    """Return how much more the last quarter of samples has than the second, at most."""
    quarter = len(samples) // 4
    early = max(read(one) for one in samples[quarter : 2 * quarter])
    return max(read(one) for one in samples[-quarter:]) - early


def test_an_hour_of_faults(place):
    """Every verdict is right, the budget is refilled, and nothing leaks."""
    soak = Soak(place)
    begin_s, number = time.monotonic(), 0
    while time.monotonic() < begin_s + MINUTES * 60:
        healthy_s = time.monotonic() + HEALTHY_S
        soak.rest(max(begin_s + number * EVERY_S, healthy_s))
        soak.measure(soak.harm(number))
        number += 1
    place.order("finish")
    place.until(lambda: soak.job.poll() is not None, "it ended", limit_s=WITHIN_S)

    samples = soak.samples
    assert soak.wrong == []
    assert exit_code(soak.job) == 0
    assert number > RESTARTS
    assert soak.statuses > number
    assert all(one.restarts["used"] <= RESTARTS for one in samples)
    for who in ("guard", "agent", "aide 0"):
        assert grown(samples, lambda one, who=who: one.kb.get(who, 0)) < GROWTH_KB, who
        assert grown(samples, lambda one, who=who: one.fds.get(who, 0)) < GROWTH_FDS
    assert grown(samples, lambda one: one.processes) <= 1
    assert max(one.temporary for one in samples) <= 2
    assert max(one.files for one in samples) <= OWN_FILES + OF_AN_ATTEMPT * (number + 1)
    assert place.left() == ()
