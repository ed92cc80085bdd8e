"""The example is what users copy: it learns, resumes exactly, and runs anywhere."""

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dsup_runtime.checkpoints import newest_valid

EXAMPLE = str(Path(__file__).parents[2] / "examples" / "train.py")
# On a busy machine two threads of torch wait for each other most of the time.
PLAIN = ["env", "OMP_NUM_THREADS=1", sys.executable, "-W", "error"]
TORCHRUN = [
    *(sys.executable, "-m", "torch.distributed.run"),
    *("--standalone", "--nproc-per-node", "2"),
]
DSUP = [
    *(sys.executable, "-m", "dsup", "launch", "--nproc", "2", "--max-restarts", "1"),
    *("--settle", "0.2", "--backoff", "0", "--log-dir", "/dev/null"),
    "--checkpoint-dir",
]

pytestmark = [pytest.mark.torch, pytest.mark.slow]


def train(root, *arguments, launcher=PLAIN, steps=6):
    """Run a tiny form of the example to its end, with a checkpoint every 2 steps."""
    size = ["--width", "8", "--steps", str(steps), "--checkpoint-every", "2"]
    return subprocess.run(
        [*launcher, EXAMPLE, "--checkpoints", str(root), *size, *arguments],
        capture_output=True,
        text=True,
        check=False,
    )


def weights(finished):
    """Return the checksum of the weights a run ended with."""
    assert finished.returncode == 0, finished.stderr
    [digest] = re.findall(r"(?m)^weights sha256 ([0-9a-f]{64})$", finished.stdout)
    return digest


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """Return a run of one plain process that nothing happened to."""
    return train(tmp_path_factory.mktemp("undisturbed"))


@pytest.fixture(scope="module")
def undisturbed_pair(tmp_path_factory):
    """Return a run of two ranks that nothing happened to."""
    return train(tmp_path_factory.mktemp("pair"), launcher=TORCHRUN)


def test_a_plain_process_trains_without_a_word_on_stderr(undisturbed):
    """No launcher is needed, and no warning is printed, not even at the exit."""
    progress = r"(?m)^step +6  loss [45]\.\d+$"

    assert undisturbed.stderr == ""
    assert re.search(progress, undisturbed.stdout)
    assert "\ndef " in undisturbed.stdout


@pytest.mark.soak
def test_weights_depend_on_the_seed(tmp_path, undisturbed):
    """A run is another one only if it is asked to be."""
    assert weights(train(tmp_path, "--seed", "1")) != weights(undisturbed)


@pytest.mark.soak
def test_a_killed_run_that_is_resumed_ends_with_the_weights_of_an_undisturbed_one(
    tmp_path, undisturbed
):
    """The checkpoint holds all there is: model, optimizer, step."""
    killed = train(tmp_path, "--fault", "kill:0@5")
    assert killed.returncode == -signal.SIGKILL
    assert newest_valid(tmp_path).newest.step == 4

    resumed = train(tmp_path)

    assert "step     5 " in resumed.stdout
    assert "step     1 " not in resumed.stdout
    assert weights(resumed) == weights(undisturbed)


def test_ranks_under_dsup_lose_nothing_by_a_death(tmp_path, undisturbed_pair):
    """Rank 0 writes and finds the checkpoint; all ranks go on from its step."""
    finished = train(tmp_path, "--fault", "kill:1@3", launcher=[*DSUP, str(tmp_path)])

    assert "step     3 " in finished.stdout
    assert "restart 1" in finished.stderr
    assert weights(finished) == weights(undisturbed_pair)


@pytest.mark.soak
def test_ranks_under_torchrun_agree_and_resume_exactly(tmp_path, undisturbed_pair):
    """Rank 0 writes and finds the checkpoint; all ranks go on from its step."""
    killed = train(tmp_path, "--fault", "kill:1@3", launcher=TORCHRUN)
    assert killed.returncode == 1
    assert newest_valid(tmp_path).newest.step == 2

    resumed = train(tmp_path, launcher=TORCHRUN)

    assert "step     3 " in resumed.stdout
    assert weights(resumed) == weights(undisturbed_pair)


def test_every_rank_draws_batches_of_its_own(undisturbed, undisturbed_pair):
    """Two ranks learn from twice as much, so they end elsewhere."""
    assert weights(undisturbed_pair) != weights(undisturbed)


@pytest.mark.soak
def test_a_loss_that_is_not_finite_costs_a_step(tmp_path, undisturbed_pair):
    """No rank takes the step that would have spoilt the weights; the run goes on."""
    finished = train(tmp_path, "--fault", "nan:1@3", launcher=TORCHRUN)

    assert "step     6 " in finished.stdout
    assert weights(finished) != weights(undisturbed_pair)
    assert newest_valid(tmp_path).newest.step == 6


def test_sigterm_is_answered_with_a_checkpoint(tmp_path):
    """The run ends at the next step, to be resumed there."""
    slow = [EXAMPLE, "--checkpoints", str(tmp_path), "--steps", "1000000"]
    with subprocess.Popen([*PLAIN, *slow], stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout.readline().startswith("step     1 ")
        run.terminate()

        assert run.wait(500) == 128 + signal.SIGTERM
    assert newest_valid(tmp_path).newest.step >= 1
