"""A checkpoint that is written while training goes on, or published by its manifest."""

import json
import os
import signal
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from dsup_runtime import deferred
from dsup_runtime.checkpoints import newest_valid, verify
from dsup_runtime.checkpoints.directory import CheckpointDir

PATIENCE_S = 600
DCP_LIMIT_S = 600
"""Importing DCP takes seconds, in each rank anew."""

SETUP = """
import logging
from dsup_runtime import deferred
from dsup_runtime.checkpoints.dcp import AsyncDcp
from dsup_runtime.checkpoints.directory import CheckpointDir
import torch.distributed.checkpoint as dcp
logging.disable()

def kept():
    return [str(each.error) for each in deferred.all_kept()]
"""


@pytest.fixture
def root(tmp_path):
    return tmp_path / "checkpoints"


@pytest.fixture(autouse=True)
def quiet():
    """Errors kept in one test are none of the next."""
    deferred.clear()
    yield
    deferred.clear()


class Background:
    """A write that ends when the test lets it."""

    def __init__(self, *, fails=False):
        self.go = threading.Event()
        self.running = 0
        self.most = 0
        self._fails = fails
        self._pool = ThreadPoolExecutor()

    def __call__(self, folder):
        """Begin to write."""
        return self._pool.submit(self._write, folder)

    def _write(self, folder):
        self.running += 1
        self.most = max(self.most, self.running)
        assert self.go.wait(PATIENCE_S)
        Path(folder, "state.pt").write_bytes(b"state")
        self.running -= 1
        if self._fails:
            raise OSError(28, "No space left on device")

    def close(self):
        """Let it end, and wait for that."""
        self.go.set()
        self._pool.shutdown()


@pytest.fixture
def background():
    """A write that ends when the test lets it."""
    writes = []

    def make(**how):
        writes.append(Background(**how))
        return writes[-1]

    yield make
    for write in writes:
        write.close()


def test_nothing_is_published_before_the_write_has_ended(root, background):
    """Until then the checkpoint is not there; finish publishes it."""
    write = background()
    checkpoints = CheckpointDir(root)

    assert checkpoints.save(5, write, wait=False)
    assert not checkpoints.finish(wait=False)
    assert checkpoints.latest() is None
    write.go.set()
    assert checkpoints.finish()
    assert checkpoints.latest().step == 5
    assert checkpoints.finish()


def test_at_most_one_is_in_flight(root, background):
    """The next save waits for the one before, and publishes it first."""
    write = background()
    checkpoints = CheckpointDir(root)
    threading.Timer(0.2, write.go.set).start()

    for step in (1, 2, 3):
        assert checkpoints.save(step, write, wait=False)
        assert checkpoints.latest() == (newest_valid(root).newest if step > 1 else None)
    assert checkpoints.latest().step == 2
    assert checkpoints.finish()
    assert write.most == 1
    assert checkpoints.latest().step == 3


def test_a_background_write_that_fails_costs_the_save_alone(root, background):
    """Its error waits, and the one before stays the newest."""
    write = background(fails=True)
    write.go.set()
    checkpoints = CheckpointDir(root)
    assert checkpoints.save(1, lambda folder: Path(folder, "state").touch())

    assert checkpoints.save(2, write, wait=False)
    assert not checkpoints.finish()
    assert str(deferred.first().error) == "[Errno 28] No space left on device"
    assert verify(checkpoints.latest().path, checksums=True) is None
    assert checkpoints.latest().step == 1


def test_a_load_publishes_what_is_in_flight(root, background):
    """What was begun is not passed over."""
    write = background()
    write.go.set()
    checkpoints = CheckpointDir(root)
    assert checkpoints.save(1, write, wait=False)

    assert checkpoints.load(lambda _: None).step == 1


def test_a_write_that_has_ended_by_itself_needs_no_waiting(root):
    """Without anything pending the save is ready to be published."""
    checkpoints = CheckpointDir(root)

    def write(folder):
        Path(folder, "state").touch()
        done: Future[None] = Future()
        done.set_result(None)
        return done

    assert checkpoints.save(1, write, wait=False)
    assert checkpoints.finish(wait=False)
    assert checkpoints.save(2, write)
    assert checkpoints.latest().step == 2


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.parametrize("size", [1, 2], ids=["alone", "two ranks"])
def test_dcp_saves_the_values_of_the_moment(world, root, size):
    """What the optimizer changes right after the call does not reach the checkpoint."""
    code = """
weights = torch.full((100_000,), 1.0)
state = {"weights": weights, "step": 3}
checkpoints, write = CheckpointDir(args), AsyncDcp(state)
saved = []
for step in (3, 4):
    weights.fill_(step)
    saved.append(checkpoints.save(step, write, wait=False))
    weights.fill_(-1.0)
    # The caller's group is free meanwhile.
    if size > 1:
        dist.all_reduce(torch.ones(1))
saved.append(checkpoints.finish())
found = checkpoints.load(lambda folder: dcp.load(state, checkpoint_id=folder))
told = [saved, found.step, weights.unique().tolist(), kept()]
"""
    alone = {"meet": ""} if size == 1 else {}
    answers = world.run(
        SETUP + code, size, args=str(root), limit_s=DCP_LIMIT_S, **alone
    )

    assert answers == [{"told": [[True] * 3, 4, [4.0], []]}] * size


@pytest.mark.slow
@pytest.mark.torch
def test_a_rank_killed_while_the_other_writes_publishes_nothing(world, root):
    """The one that is left learns it in bounded time; the one before is unharmed."""
    code = """
import signal
state = {"weights": torch.ones(1_000)}
checkpoints, write = CheckpointDir(args), AsyncDcp(state)
assert checkpoints.save(1, write)
checkpoints.save(2, write, wait=False)
if rank == 1:
    os.kill(os.getpid(), signal.SIGKILL)
try:
    checkpoints.finish()
except Exception as error:
    told = type(error).__name__
"""
    answers = world.run(SETUP + code, 2, args=str(root), limit_s=DCP_LIMIT_S)

    assert answers == [{"told": "PeerError"}, None]
    assert newest_valid(root, checksums=True).newest.step == 1


def write_two(folder):
    for name in ("a", "b"):
        Path(folder, name).write_bytes(b"state" * 100)


def test_without_a_rename_the_manifest_publishes(root):
    """Files lie where they stay; until the manifest is there nobody takes them."""
    checkpoints = CheckpointDir(root, commit="manifest")

    def write(folder):
        assert folder == str(root / "step-00000001")
        write_two(folder)
        assert checkpoints.latest() is None

    assert checkpoints.save(1, write)
    assert newest_valid(root, checksums=True).newest.step == 1


@pytest.mark.slow
def test_without_a_rename_a_crash_leaves_what_nobody_takes(root, run):
    """What has no manifest is passed over, kept out of the way, and cleared later."""
    script = f"""
import os
from pathlib import Path
from dsup_runtime.checkpoints.directory import CheckpointDir
checkpoints = CheckpointDir({str(root)!r}, commit="manifest", keep=2)
def write(folder):
    Path(folder, "state").write_bytes(b"state")
def die(folder):
    write(folder)
    os.kill(os.getpid(), 9)
checkpoints.save(1, write)
checkpoints.save(2, die)
"""
    assert run(script)[0] == -signal.SIGKILL
    assert (root / "step-00000002/state").exists()

    checkpoints = CheckpointDir(root, commit="manifest", keep=2)
    assert checkpoints.load(lambda _: None).step == 1
    assert (root / "step-00000002/state").exists()
    assert checkpoints.save(3, write_two)
    assert not (root / "step-00000002").exists()
    assert [checkpoints.save(step, write_two) for step in (4, 5)] == [True, True]
    left = [name for name in os.listdir(root) if name.startswith("step-")]
    assert sorted(left) == ["step-00000004", "step-00000005"]


def test_without_a_rename_a_step_begun_before_is_begun_anew(root):
    """The files of a try that failed do not become part of the next."""
    checkpoints = CheckpointDir(root, commit="manifest")

    def spoil(folder):
        write_two(folder)
        os.mkfifo(f"{folder}/pipe")

    assert not checkpoints.save(1, spoil)
    assert checkpoints.save(1, lambda folder: Path(folder, "c").touch())
    manifest = json.loads((root / "step-00000001/manifest.json").read_text())
    assert [entry["name"] for entry in manifest["files"]] == ["c"]
