"""What NVML says of the GPUs reaches the verdict; a driver that hangs ends nothing."""

import json

import pytest

pytestmark = [pytest.mark.dsup_only, pytest.mark.slow]


@pytest.fixture
def fake(run, proc, nvml):
    """Give ``fake(mode, clauses, …)``: a launch on a node with two GPUs.

    All is well with them until rank 1 says otherwise, by ``touch``; what it does
    before, it does when the GPUs have been asked for the first time.
    """

    def launch(mode, *clauses, env=None, more=""):
        seen = run.files / "seen"
        environment = {
            "LD_LIBRARY_PATH": nvml(),
            "FAKE_NVML_MODE": mode,
            "FAKE_NVML_WHEN": str(run.files / "1"),
            "FAKE_NVML_SEEN": str(seen),
            **(env or {}),
        }
        options = f"--nproc 2 --max-restarts 0 {more}"
        run.start(options, *clauses, env=environment)
        if mode != "hang_start":
            proc.until(seen.exists, 600, "NVML was never asked")
        run.emit("asked")
        return run

    return launch


def verdict_of(run):
    """Return the verdict of the only attempt."""
    return json.loads((run.run_dir() / "attempt_0/verdict.json").read_text())


def told_by_nvml(verdict):
    """Return what of the evidence is NVML's."""
    return [line["text"] for line in verdict["evidence"] if line["source"] == "nvml"]


def sickens(run, *, then):
    """Return the clauses of a rank 1 whose GPU falls ill, and which then acts."""
    return f"1:wait=asked,touch={run.files},{then}", "0:hang"


def test_a_rank_whose_gpu_had_a_double_bit_error_is_named(fake, run):
    """The rank that aborted is the first, and its GPU is the reason."""
    code = fake("ecc", *sickens(run, then="die=ABRT")).ended()
    verdict = verdict_of(run)

    assert (verdict["first_ranks"], verdict["cause"]) == ([1], "gpu_hardware")
    assert any("GPU 1 (0000:2b:00)" in text for text in told_by_nvml(verdict)), verdict
    assert any("uncorrectable" in text for text in told_by_nvml(verdict))
    assert verdict["exit"]["code"] == code
    run.nothing_left()


def test_the_gpu_is_the_one_that_cuda_gives_the_rank(fake, run):
    """NVML's number is not the local rank where a list turns them round."""
    env = {"CUDA_VISIBLE_DEVICES": "GPU-1,GPU-0", "FAKE_NVML_GPU": "0"}
    fake("ecc", *sickens(run, then="quit=5"), env=env).ended()
    verdict = verdict_of(run)

    assert verdict["first_ranks"] == [1]
    assert any("GPU 0 (0000:1b:00)" in text for text in told_by_nvml(verdict)), verdict


@pytest.mark.parametrize("mode", ["hang", "hang_start"])
def test_a_driver_that_hangs_delays_the_end_by_its_deadline_only(fake, run, mode):
    """The launch ends, says that NVML was silent, and leaves no process behind."""
    env = {"FAKE_NVML_WHEN": ""} if mode == "hang_start" else {}
    code = fake(mode, *sickens(run, then="die=KILL"), env=env).ended()
    verdict = verdict_of(run)

    assert (code, verdict["first_ranks"]) == (137, [1])
    assert any("NVML" in text and "2 s" in text for text in told_by_nvml(verdict))
    run.nothing_left()


def test_a_hang_tells_what_the_gpus_did(fake, run):
    """They are asked while the ranks live, when their stacks are taken."""
    env = {"FAKE_NVML_WHEN": ""}
    code = fake("spin", "*:hang", env=env, more="--hang-after 3").ended()
    verdict = verdict_of(run)

    assert (code, verdict["cause"]) == (194, "hang"), verdict
    assert told_by_nvml(verdict) == [
        "rank 0: GPU 0 idle: nothing runs on it; 70 W, P0",
        "rank 1: GPU 1 busy 100 % with memory idle: a kernel spins; 118 W, P0",
    ]


def test_a_run_that_ends_well_waits_for_no_gpu(fake, run):
    """Nobody is asked when nothing has failed, and the probe goes with the run."""
    code = fake("hang_start", "*:wait=asked", env={"FAKE_NVML_WHEN": ""}).ended()

    assert code == 0
    run.nothing_left()


def test_without_nvml_a_verdict_is_as_it_was(run):
    """A node without GPUs blames none."""
    code = run.start("--nproc 2 --max-restarts 0", "1:die=KILL", "0:hang").ended()
    verdict = verdict_of(run)

    assert (code, verdict["cause"], verdict["first_ranks"]) == (137, "killed", [1])
    assert not any("GPU" in text for text in [verdict["summary"]])
