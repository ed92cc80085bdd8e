"""The example is killed at a drawn step, and ends with the weights of a quiet run."""

import hashlib
import os
import re
import signal
from pathlib import Path
from typing import NamedTuple

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.torch]

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "train.py"
WORKERS = Path(__file__).parent.parent / "blackbox" / "workers"
RANKS = 2
STEPS = 24
CHECKPOINT_EVERY = 5
SIGNALS = ("KILL", "SEGV", "ABRT", "BUS", "FPE", "ILL", "TERM", "INT")
QUIET: dict[str, str] = {}
"""The digest of the undisturbed run: the same for all, so it is run once."""


class Draw(NamedTuple):
    """What happens to the run: this rank gets this signal at this step."""

    rank: int
    step: int
    signal: str


def draw(seed):
    """Return the draw of that seed; the same on every machine."""
    numbers = hashlib.sha256(f"dsup soak {seed}".encode()).digest()
    name = SIGNALS[numbers[2] % len(SIGNALS)]
    return Draw(numbers[0] % RANKS, 1 + numbers[1] % (STEPS - 2), name)


def start(run, *faults):
    """Start the example with its checkpoints in the run's own directory."""
    root = run.files / "checkpoints"
    run.start(
        f"--nproc {RANKS} --max-restarts 2 --checkpoint-dir {root}",
        *("--steps", str(STEPS), "--width", "32", "--checkpoints", str(root)),
        *("--checkpoint-every", str(CHECKPOINT_EVERY), *faults),
        script=EXAMPLE,
    )


def digest_of(run):
    """Return the digest of the weights, once the run ended well."""
    assert run.ended() == 0, run.console()
    (digest,) = re.findall("weights sha256 ([0-9a-f]{64})", run.console())
    return digest


def resumed_step(run):
    """Return the step of the checkpoint that the last attempt was handed; 0 if none."""
    told = re.findall(r"resuming from .*step-(\d+)", "\n".join(run.said()))
    return int(told[-1]) if told else 0


def stopped_rank(run, proc):
    """Return the pid of the rank that stands still at its step."""
    return [pid for pid, _ in run.processes() if proc.state_of(pid) == "T"]


SEEDS = [pytest.param(n, id=f"seed {n}") for n in range(20)]


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_killed_run_ends_with_the_same_weights(new_run, proc, seed):
    """Killed anywhere, it resumes from the checkpoint; every bit is as undisturbed."""
    if not QUIET:
        quiet = new_run()
        start(quiet)
        QUIET["digest"] = digest_of(quiet)
    drawn, run = draw(seed), new_run()
    start(run, "--fault", f"stop:{drawn.rank}@{drawn.step}")
    (pid,) = proc.until(lambda: stopped_rank(run, proc), 60, run.console)
    os.kill(pid, signal.Signals[f"SIG{drawn.signal}"])
    os.kill(pid, signal.SIGCONT)

    assert digest_of(run) == QUIET["digest"], f"{drawn}: {run.console()}"
    assert drawn.step - CHECKPOINT_EVERY <= resumed_step(run) <= drawn.step, drawn
    assert any(f"rank {drawn.rank}" in line for line in run.said()), drawn
    run.nothing_left()


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_a_process_group_survives_twenty_restarts(run):
    """A job that called init_process_group is restarted 20 times in a row."""
    run.start("--nproc 2 --max-restarts 20", "20", script=WORKERS / "gloo.py")

    assert run.ended(1700) == 0, run.console()
    assert {event.attempt for event in run.events("done")} == {20}
    assert len(run.events("reduced")) == 2 * 21
    run.nothing_left()
