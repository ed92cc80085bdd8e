"""Scripts of other frameworks run as they are: dsup is a launcher like torchrun."""

import contextlib
import importlib.util
import os
import re
import secrets
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

REPO = Path(__file__).parents[2]
TORCHRUN = [
    *(sys.executable, "-m", "torch.distributed.run"),
    *("--standalone", "--nproc-per-node", "2"),
]
DSUP = [sys.executable, "-m", "dsup", "launch", "--nproc", "2"]
SAVED = {
    "accelerate": "epoch-*",
    "deepspeed": "epoch-*",
    "lightning": "*.ckpt",
    "transformers": "checkpoint-*",
}
"""For each framework the names of its checkpoints."""

NOT_OURS = ("DSUP_", "HF_", "MASTER_", "OMP_", "PET_", "PYTHON", "TORCHELASTIC_")
MARK = "DSUP_TEST_MARK"
PATIENCE_S = 500
"""A framework's import takes many seconds, and on a busy machine minutes."""

GLOO_ABORTED = "terminate called without an active exception"
TRIES = 3

pytestmark = [pytest.mark.torch, pytest.mark.slow]


def read_or_empty(path):
    """Return the bytes of a file of /proc; none if its process has gone."""
    try:
        return path.read_bytes()
    except OSError:
        return b""


def leads(pid):
    """Tell whether a process leads a session; not if it has gone."""
    try:
        return os.getsid(pid) == pid
    except ProcessLookupError:
        return False


def example(framework):
    """Return the path of a framework's example."""
    return REPO / "examples" / f"with_{framework}.py"


class Launch:
    """One launch of a script, seen from outside."""

    def __init__(self, base, launcher, script, *arguments):
        self.mark = f"{MARK}={secrets.token_hex(8)}"
        self.script = script
        self._out, self._err = base / "out", base / "err"
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = subprocess.Popen(
                [*launcher, str(self.script), *arguments],
                env=self._environ(base),
                cwd=base,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
            )

    def _environ(self, base):
        clean = {k: v for k, v in os.environ.items() if not k.startswith(NOT_OURS)}
        sources = f"{REPO}/supervisor{os.pathsep}{REPO}/worker_runtime"
        name, _, value = self.mark.partition("=")
        ours = {"HOME": str(base), "PYTHONPATH": sources, name: value}
        return clean | ours | {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}

    def told(self):
        """Return what the ranks have printed so far."""
        return self._out.read_text()

    def complaints(self):
        """Return what was written to standard error so far."""
        return self._err.read_text()

    def known(self):
        """Return ``rank R of N`` of each rank, as the framework knows it."""
        return re.findall(r"(?m)^rank (\d of \d)", self.told())

    def losses(self):
        """Return the loss of each epoch, in the order they were told."""
        line = r"(?m)^(?=.*\bepoch\W+(\d+))(?=.*\bloss\W+([\d.]+))"
        return [(int(epoch), loss) for epoch, loss in re.findall(line, self.told())]

    def processes(self):
        """Return the environment of each living process of this launch, by pid."""
        environs = (
            (int(entry.parent.name), read_or_empty(entry).split(b"\0"))
            for entry in Path("/proc").glob("[0-9]*/environ")
        )
        return {pid: env for pid, env in environs if self.mark.encode() in env}

    def ranks(self):
        """Return ``(rank, pid)`` of each living process that leads a rank.

        What a framework forks has the rank's command and environment, even where it
        lives for a moment only; but the rank alone leads a session.
        """
        return sorted(
            (int(value), pid)
            for pid, environ in self.processes().items()
            for name, _, value in (word.partition(b"=") for word in environ)
            if name == b"RANK" and self._runs_the_script(pid) and leads(pid)
        )

    def _runs_the_script(self, pid):
        return bytes(self.script) in read_or_empty(Path(f"/proc/{pid}/cmdline"))

    def until(self, condition, within_s=PATIENCE_S):
        """Wait for a condition; fail if the launch ends before, or the time is over."""
        nap, end_s = threading.Event(), time.monotonic() + within_s
        while not condition():
            said = f"{self.told()[-2000:]}\n{self.complaints()[-6000:]}"
            assert self.process.poll() is None, f"ended before:\n{said}"
            assert time.monotonic() < end_s, f"not within {within_s} s:\n{said}"
            nap.wait(0.02)

    def ended(self, within_s=PATIENCE_S):
        """Return the exit code once the launcher ended; say what it told, if not."""
        try:
            return self.process.wait(within_s)
        except subprocess.TimeoutExpired:
            said = f"{self.told()[-2000:]}\n{self.complaints()[-6000:]}"
            pytest.fail(f"not ended within {within_s} s:\n{said}")


@pytest.fixture(params=sorted(SAVED))
def framework(request):
    """Give the name of a framework that is installed."""
    if not importlib.util.find_spec(request.param):
        pytest.skip(f"{request.param} is not installed")
    return request.param


@pytest.fixture
def launch(tmp_path):
    """Give ``launch(launcher, script, *arguments)``; all end with the test."""
    launches: list[Launch] = []

    def start(*how):
        base = tmp_path / str(len(launches))
        base.mkdir()
        launches.append(Launch(base, *how))
        return launches[-1]

    yield start
    for each in launches:
        each.process.kill()
        each.process.wait()
        while left := each.processes():
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


@pytest.fixture
def finished(framework, launch):
    """Return a run of the framework's example that has ended with 0.

    Gloo's threads can outlive their group and abort a rank that was done, under any
    launcher: that is not what is tested here, so then it is tried again.
    """
    for _ in range(TRIES):
        run = launch(DSUP, example(framework))
        code, said = run.ended(), run.complaints()
        if GLOO_ABORTED not in said:
            assert code == 0, said
            return run
    return pytest.fail(f"gloo aborted a rank {TRIES} times")


def test_a_script_runs_as_it_is(finished):
    """Not a line of it is changed; the framework sees both ranks, and all is quiet."""
    assert sorted(finished.known()) == ["0 of 2", "1 of 2"]
    assert [epoch for epoch, _ in finished.losses()] == [1, 2, 3, 4, 5]
    assert "destroy_process_group" not in finished.complaints()
    assert finished.processes() == {}


@pytest.mark.soak
def test_a_script_learns_the_same_under_torchrun_and_under_dsup(framework, launch):
    """The losses are equal to the last digit that is printed."""
    theirs = launch(TORCHRUN, example(framework))
    theirs.ended()
    ours = launch(DSUP, example(framework))
    ours.ended()

    assert ours.losses() == theirs.losses() != []


def test_a_killed_rank_costs_an_epoch_and_a_stop_leaves_nothing(framework, launch):
    """The framework's own checkpoints are found; SIGTERM ends all ranks as asked."""
    launcher = [
        *(*DSUP, "--max-restarts", "1", "--backoff", "0", "--settle", "0.2"),
        # Lightning's handler of SIGTERM meets the other ranks, and may wait for ever.
        *("--shutdown-timeout", "2"),
        *("--checkpoint-glob", f"saved/{SAVED[framework]}"),
        "--resume-arg=--resume={path}",
    ]
    arguments = ("--epochs", "100000", "--save", "saved")
    run = launch(launcher, example(framework), *arguments)
    run.until(lambda: len(run.losses()) >= 3)
    [(_, _), (rank, pid)] = run.ranks()
    assert rank == 1, "each rank is one process, which dsup started"

    os.kill(pid, signal.SIGKILL)
    run.until(lambda: len(run.known()) == 4)
    before = len(run.losses())
    run.until(lambda: len(run.losses()) > before)
    run.process.terminate()

    assert run.ended() == 128 + signal.SIGTERM
    assert run.losses()[before][0] > 2, "it began anew"
    assert run.processes() == {}


def test_lightning_takes_the_ranks_for_those_of_torchelastic(tmp_path, launch):
    """So it never starts ranks of its own."""
    if not importlib.util.find_spec("lightning"):
        pytest.skip("lightning is not installed")
    script = tmp_path / "environment.py"
    script.write_text(
        "from lightning.pytorch import Trainer\n"
        "trainer = Trainer(devices=2, logger=False, enable_checkpointing=False)\n"
        "print(type(trainer.strategy.cluster_environment).__name__, flush=True)\n"
    )

    run = launch(DSUP, script)

    assert run.ended() == 0
    assert run.told().split() == ["TorchElasticEnvironment"] * 2
