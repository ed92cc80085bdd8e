"""dsup_runtime inside the loops of frameworks: what it promises holds there too.

Each example is copied by users of its framework, so each is run: to its end, killed and
resumed, and stopped, on two ranks, by real signals.
"""

import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from dsup_runtime.checkpoints import newest_valid

REPO = Path(__file__).parents[2]
PLAIN = [sys.executable]
TORCHRUN = [
    *(sys.executable, "-m", "torch.distributed.run"),
    *("--standalone", "--nproc-per-node", "2"),
]
DSUP = [
    *(sys.executable, "-m", "dsup", "launch", "--nproc", "2"),
    *("--checkpoint-dir", "saved", "--max-restarts", "1"),
    *("--backoff", "0", "--settle", "0.2"),
]
EVERY, EPOCHS = 10, 3
STEPS = {1: EPOCHS * 32, 2: EPOCHS * 16}
"""Steps of a whole run on so many ranks: 1024 samples, 32 a step and rank."""

GLOO_ABORTED = "terminate called without an active exception"
TRIES = 3

FRAMEWORKS = ["accelerate", "deepspeed", "fsdp2", "lightning", "transformers"]
NOT_OURS = ("DSUP_", "HF_", "MASTER_", "OMP_", "PET_", "PYTHON", "TORCHELASTIC_")

pytestmark = [pytest.mark.torch, pytest.mark.slow]


@pytest.fixture(params=FRAMEWORKS)
def script(request):
    """Give the example of a framework that is installed."""
    needed = "torch" if request.param == "fsdp2" else request.param
    if not importlib.util.find_spec(needed):
        pytest.skip(f"{needed} is not installed")
    return str(REPO / "examples" / f"runtime_{request.param}.py")


class Run:
    """One launch of an example in a directory of its own."""

    def __init__(self, base, launcher, script, epochs=EPOCHS, fault=""):
        self.saved = base / "saved"
        self._out, self._err = base / "out", base / "err"
        clean = {k: v for k, v in os.environ.items() if not k.startswith(NOT_OURS)}
        sources = f"{REPO}/supervisor{os.pathsep}{REPO}/worker_runtime"
        ours = {"HOME": str(base), "PYTHONPATH": sources, "HF_HUB_OFFLINE": "1"}
        alone = {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1", "DSUP_FAULT": fault}
        size = ["--epochs", str(epochs), "--checkpoint-every", str(EVERY)]
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = subprocess.Popen(
                [*launcher, script, *size],
                env=clean | ours | alone,
                cwd=base,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
            )

    def told(self, what):
        """Return rank and step of each line in which a rank begins, or ends."""
        line = rf"(?m)^rank (\d) {what} at step (\d+)$"
        found = re.findall(line, self._out.read_text())
        return [(int(rank), int(step)) for rank, step in found]

    def newest(self):
        """Return the step of the newest whole checkpoint; 0 without one."""
        found = newest_valid(str(self.saved)).newest
        return found.step if found else 0

    def until_saved(self, step, within_s=500):
        """Wait until a step is saved; fail if the run ends before."""
        nap, end_s = threading.Event(), time.monotonic() + within_s
        while self.newest() < step:
            assert self.process.poll() is None, self.complaints()
            assert time.monotonic() < end_s, self.complaints()
            nap.wait(0.05)

    def ended(self, within_s=500):
        """Return the exit code."""
        try:
            return self.process.wait(within_s)
        except subprocess.TimeoutExpired:
            pytest.fail(f"not ended within {within_s} s:\n{self.complaints()}")

    def complaints(self):
        """Return the end of what was written to standard error."""
        return self._err.read_text()[-6000:]

    def rank(self, wanted):
        """Return the pid of the process that leads a rank."""
        mine = f"HOME={self.saved.parent}".encode(), f"RANK={wanted}".encode()
        for entry in Path("/proc").glob("[0-9]*/environ"):
            try:
                environ, pid = entry.read_bytes().split(b"\0"), int(entry.parent.name)
                if all(word in environ for word in mine) and os.getsid(pid) == pid:
                    return pid
            except (OSError, ProcessLookupError):
                continue
        return pytest.fail(f"there is no rank {wanted}:\n{self.complaints()}")


@pytest.fixture
def launch(tmp_path):
    """Give ``launch(launcher, script, ...)``; what it started ends with the test."""
    runs: list[Run] = []

    def start(*how, **more):
        runs.append(Run(tmp_path, *how, **more))
        return runs[-1]

    yield start
    for run in runs:
        if run.process.poll() is None:
            run.process.terminate()
            try:
                run.process.wait(600)
            except subprocess.TimeoutExpired:
                run.process.kill()
                run.process.wait()


@pytest.fixture
def finished(launch):
    """Give ``finished(launcher, script, ...)``: a run that has ended with 0.

    Gloo's threads can outlive their group and abort a rank that was done, under any
    launcher: that is not what is tested here, so then it is tried again.
    """

    def run(*how, **more):
        for _ in range(TRIES):
            one = launch(*how, **more)
            code, said = one.ended(), one.complaints()
            if GLOO_ABORTED not in said:
                assert code == 0, said
                return one
            shutil.rmtree(one.saved)
        return pytest.fail(f"gloo aborted a rank {TRIES} times")

    return run


@pytest.mark.parametrize(
    ("launcher", "ranks"),
    [
        pytest.param(PLAIN, 1, id="python"),
        pytest.param(TORCHRUN, 2, id="torchrun", marks=pytest.mark.soak),
        pytest.param(DSUP, 2, id="dsup", marks=pytest.mark.soak),
    ],
)
def test_the_example_runs_to_its_end(script, finished, launcher, ranks):
    """Whoever starts it: all ranks take every step, and checkpoints are left."""
    run = finished(launcher, script)

    assert sorted(run.told("begins")) == [(rank, 0) for rank in range(ranks)]
    assert sorted(run.told("ends")) == [(rank, STEPS[ranks]) for rank in range(ranks)]
    assert run.newest() >= STEPS[ranks] - EVERY


def test_a_killed_rank_costs_the_steps_since_the_last_checkpoint(script, finished):
    """The next attempt goes on from it, on all ranks, and comes to the same end."""
    run = finished(DSUP, script, fault="kill:1@25")

    assert sorted(run.told("begins")) == [(0, 0), (0, 20), (1, 0), (1, 20)]
    assert sorted(run.told("ends")) == [(0, STEPS[2]), (1, STEPS[2])]


@pytest.mark.parametrize(
    "to_whom", [pytest.param("dsup", marks=pytest.mark.soak), "rank 1"]
)
def test_sigterm_ends_all_ranks_at_the_same_step(script, launch, to_whom):
    """One signal, wherever it arrives: the step is saved, and the exit code is 143.

    Lightning would meet the other ranks in its handler, which only one of them is in.
    """
    run = launch(DSUP, script, epochs=100_000)
    run.until_saved(2 * EVERY)

    os.kill(run.process.pid if to_whom == "dsup" else run.rank(1), signal.SIGTERM)

    assert run.ended() == 128 + signal.SIGTERM, run.complaints()
    [(_, step), (_, other)] = run.told("ends")
    assert step == other == run.newest()


@pytest.mark.soak
def test_a_stopped_run_goes_on_from_the_step_it_was_stopped_at(script, launch):
    """Nothing is lost by a stop, not even the steps since the last due checkpoint."""
    stopped = launch(DSUP, script, epochs=100_000)
    stopped.until_saved(EVERY)
    stopped.process.terminate()
    assert stopped.ended() == 128 + signal.SIGTERM
    step = stopped.newest()

    resumed = launch(DSUP, script, epochs=100_000)
    resumed.until_saved(step + EVERY)

    assert sorted(resumed.told("begins")) == [(0, step), (1, step)]
