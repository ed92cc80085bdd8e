"""The example is what users copy: it learns, resumes exactly, and runs anywhere."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from dsup_runtime.checkpoints import newest_valid

EXAMPLE = str(Path(__file__).parents[2] / "examples" / "train.py")
PLAIN = [sys.executable, "-W", "error"]
TORCHRUN = [
    *(sys.executable, "-m", "torch.distributed.run"),
    *("--standalone", "--nproc-per-node", "2"),
]

pytestmark = [pytest.mark.torch, pytest.mark.slow, pytest.mark.timeout(60)]


def train(*arguments, launcher=PLAIN, steps=6):
    """Run a tiny form of the example to its end, with a checkpoint every 2 steps."""
    size = ["--width", "8", "--steps", str(steps), "--checkpoint-every", "2"]
    return subprocess.run(
        [*launcher, EXAMPLE, *size, *arguments],
        capture_output=True,
        text=True,
        check=False,
    )


def weights(finished):
    """Return the checksum of the weights a run ended with."""
    assert finished.returncode == 0, finished.stderr
    [digest] = re.findall(r"(?m)^weights sha256 ([0-9a-f]{64})$", finished.stdout)
    return digest


def test_a_plain_process_trains_without_a_word_on_stderr():
    """No launcher is needed, and no warning is printed, not even at the exit."""
    finished = train("--seed", "5")

    assert weights(finished)
    assert finished.stderr == ""
    assert re.search(r"(?m)^step +6  loss [45]\.\d+  [\d,]+ tokens/s$", finished.stdout)
    assert "\ndef " in finished.stdout


def test_the_seed_and_nothing_else_decides_the_weights():
    """Two runs alike end alike; another seed ends elsewhere."""
    first, again, other = (weights(train("--seed", seed)) for seed in "001")

    assert first == again != other


def test_a_killed_run_that_is_resumed_ends_with_the_weights_of_an_undisturbed_one(
    tmp_path,
):
    """The checkpoint holds all there is: model, optimizer, step."""
    killed = train("--checkpoints", str(tmp_path), "--fault", "kill:0@5")
    assert killed.returncode == -9
    assert newest_valid(tmp_path).newest.step == 4

    resumed = train("--checkpoints", str(tmp_path))

    assert "step     5 " in resumed.stdout
    assert "step     1 " not in resumed.stdout
    assert weights(resumed) == weights(train())


def test_ranks_under_torchrun_agree_and_resume_exactly(tmp_path):
    """Rank 0 writes and finds the checkpoint; all ranks go on from its step."""
    killed = train(
        *("--checkpoints", str(tmp_path), "--fault", "kill:1@3"), launcher=TORCHRUN
    )
    assert killed.returncode == 1
    assert newest_valid(tmp_path).newest.step == 2

    resumed = train("--checkpoints", str(tmp_path), launcher=TORCHRUN)

    assert weights(resumed) == weights(train(launcher=TORCHRUN)) != weights(train())


def test_a_loss_that_is_not_finite_ends_the_run_before_it_is_saved(tmp_path):
    """The step that would have spoilt the weights is not taken."""
    finished = train("--checkpoints", str(tmp_path), "--fault", "nan:0@3")

    assert finished.returncode == 1
    last_line = finished.stderr.splitlines()[-1]
    assert last_line == "FloatingPointError: gradients are not finite (loss here: nan)"
    assert newest_valid(tmp_path).newest.step == 2
