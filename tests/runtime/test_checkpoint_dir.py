"""All ranks save and load one checkpoint together: all of it, or nothing."""

import json
import os
import zlib
from pathlib import Path

import pytest

from dsup_runtime.checkpoints import begin, commit, newest_valid
from dsup_runtime.checkpoints.directory import CheckpointDir

pytestmark = [pytest.mark.slow, pytest.mark.torch]

SETUP = """
import logging
from dsup_runtime import deferred
from dsup_runtime.checkpoints.directory import CheckpointDir
logging.disable()

def write(folder):
    with open(f"{folder}/rank-{rank}.bin", "wb") as file:
        file.write(bytes([rank]) * 1000)

def kept():
    return [str(each.error) for each in deferred.all_kept()]
"""


def put(root, step, *, files=("rank-0.bin", "rank-1.bin")):
    """Commit a checkpoint with this process alone."""
    tmp = begin(root, step)
    for name in files:
        with open(f"{tmp}/{name}", "wb") as file:
            file.write(b"%d " % step * 100)
    return commit(tmp, step)


def names(root):
    """Return what is in a directory, but for what is on its way out."""
    return sorted(name for name in os.listdir(root) if not name.startswith(".trash"))


@pytest.fixture
def root(tmp_path):
    return tmp_path / "checkpoints"


def test_every_rank_answers_for_its_own_files(world, root):
    """The manifest is made of the ranks' own files, which stay beside it."""
    code = """
checkpoints = CheckpointDir(args)
saved = checkpoints.save(7, write, meta={"loss": 1.5})
told = [saved, checkpoints.latest(), kept()]
"""
    answers = world.run(SETUP + code, size=2, args=str(root))

    folder = root / "step-00000007"
    assert answers == [{"told": [True, [7, str(folder)], []]}] * 2
    assert names(root) == ["latest", "step-00000007"]
    manifest = json.loads((folder / "manifest.json").read_text())
    entries = [
        {"name": f"rank-{rank}.bin", "bytes": 1000, "crc32": crc_of(rank)}
        for rank in range(2)
    ]
    assert manifest["files"] == entries
    assert manifest["meta"] == {"loss": 1.5}
    assert (manifest["world_size"], manifest["checksum"]) == (2, "crc32")
    for rank, entry in enumerate(entries):
        told = json.loads((folder / f"rank-{rank:05d}.json").read_text())
        assert told["files"] == [entry]


def crc_of(rank):
    return f"{zlib.crc32(bytes([rank]) * 1000):08x}"


@pytest.mark.parametrize(
    ("checksum", "found"),
    [("crc32", True), ("sha256", True), ("none", False)],
)
def test_a_flipped_bit_is_found_if_there_is_a_checksum(world, root, checksum, found):
    """A flip in the file of rank 1 sends both ranks to the checkpoint before."""
    code = """
checkpoints = CheckpointDir(args[0], checksum=args[1])
for step in (1, 2):
    checkpoints.save(step, write)
if rank == 0:
    with open(f"{args[0]}/step-00000002/rank-1.bin", "r+b") as file:
        file.seek(500)
        file.write(bytes([0]))
dist.barrier()
loaded = CheckpointDir(args[0]).load(lambda folder: None)
told = loaded.step
"""
    answers = world.run(SETUP + code, size=2, args=[str(root), checksum])

    assert answers == [{"told": 1 if found else 2}] * 2
    assert ("step-00000002.corrupt" in names(root)) is found


def flip(path):
    with open(path, "r+b") as file:
        byte = file.read(1)[0]
        file.seek(0)
        file.write(bytes([byte ^ 1]))


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda step: flip(step / "rank-1.bin"), id="one bit of rank 1's"),
        pytest.param(lambda step: flip(step / "rank-0.bin"), id="one bit of rank 0's"),
        pytest.param(lambda step: os.truncate(step / "rank-1.bin", 9), id="truncated"),
        pytest.param(lambda step: (step / "rank-1.bin").unlink(), id="shard deleted"),
        pytest.param(
            lambda step: (step / "manifest.json").unlink(), id="manifest deleted"
        ),
        pytest.param(
            lambda step: os.truncate(step / "manifest.json", 50), id="manifest cut off"
        ),
    ],
)
def test_what_is_damaged_is_put_aside_and_the_one_before_loaded(world, root, spoil):
    """Every rank loads the same older one; of the damaged one nothing is deleted."""
    put(root, 1)
    put(root, 2)
    (root / "latest").write_bytes(b"\xff\x00garbage")
    before = {path.name for path in (root / "step-00000002").iterdir()}
    spoil(root / "step-00000002")
    left = {path.name for path in (root / "step-00000002").iterdir()}
    code = """
checkpoints = CheckpointDir(args)
told = [checkpoints.load(lambda folder: None).step, checkpoints.save(2, write)]
"""
    answers = world.run(SETUP + code, size=2, args=str(root))

    assert answers == [{"told": [1, True]}] * 2
    aside = root / "step-00000002.corrupt"
    assert {path.name for path in aside.iterdir()} == left <= before
    assert newest_valid(root, checksums=True).newest.step == 2


HIDE = """
import ctypes, subprocess
def hide(path):
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.unshare(0x20000) == 0  # CLONE_NEWNS
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    subprocess.run(["mount", "-t", "tmpfs", "none", path], check=True)
"""
"""Lets one rank see an empty directory where the others see what is there."""


@pytest.mark.root
def test_a_rank_that_does_not_see_the_newest_takes_all_to_the_one_before(world, root):
    """Where the ranks' views differ nobody decides alone, and nothing is put aside."""
    put(root, 1)
    put(root, 2)
    code = """
if rank == 1:
    hide(f"{args}/step-00000002")
checkpoints = CheckpointDir(args, visibility_s=0.2)
told = checkpoints.load(lambda folder: None).step
"""
    answers = world.run(SETUP + HIDE + code, size=2, args=str(root))

    assert answers == [{"told": 1}] * 2
    assert names(root) == ["latest", "step-00000001", "step-00000002"]


@pytest.mark.root
def test_what_is_whole_but_not_for_all_keeps_a_run_from_beginning_anew(world, root):
    """A rank without the file system ends the load on all, and nothing is renamed."""
    put(root, 1)
    code = """
if rank == 1:
    hide(args)
checkpoints = CheckpointDir(args, visibility_s=0.2)
checkpoints.load(lambda folder: None)
"""
    answers = world.run(SETUP + HIDE + code, size=2, args=str(root))

    assert {answer["error"] for answer in answers} == {"CheckpointError"}
    assert all("rank 1 finds that cannot see" in answer["text"] for answer in answers)
    assert names(root) == ["latest", "step-00000001"]


@pytest.mark.root
def test_a_rank_that_never_sees_the_new_directory_costs_the_save(world, root):
    """Nobody writes before all see where to, and the rank that does not says so."""
    root.mkdir()
    code = """
if rank == 1:
    hide(args)
told = [CheckpointDir(args, visibility_s=0.2).save(1, write), kept()]
"""
    answers = world.run(SETUP + HIDE + code, size=2, args=str(root))

    saved, errors = zip(*(answer["told"] for answer in answers), strict=True)
    assert saved == (False, False)
    assert errors[0] == []
    assert errors[1][0].startswith("cannot see ")
    assert newest_valid(root).newest is None


def test_ranks_that_restored_different_steps_learn_it(world, root):
    """A rank that read something else stops all of them, with the steps named."""
    put(root, 5)
    code = "CheckpointDir(args).load(lambda folder: 5 - rank)"
    answers = world.run(SETUP + code, size=2, args=str(root))

    assert {answer["error"] for answer in answers} == {"CheckpointError"}
    assert all("5 on rank 0, 4 on rank 1" in answer["text"] for answer in answers)


def test_ranks_at_different_steps_save_nothing(world, root):
    """That they got apart is an error on each of them, before anything is written."""
    code = "CheckpointDir(args).save(10 + rank, write)"
    answers = world.run(SETUP + code, size=2, args=str(root))

    assert {answer["error"] for answer in answers} == {"CheckpointError"}
    assert all("10 on rank 0, 11 on rank 1" in answer["text"] for answer in answers)
    assert not root.exists()


def test_a_sick_rank_keeps_all_from_saving(world, root):
    """A state that is not fit to resume from does not push out the good ones."""
    code = """
checkpoints = CheckpointDir(args, keep=1, every=5)
told = [checkpoints.save(5, write)]
for healthy in (rank == 0, True):
    told += [checkpoints.due(10), checkpoints.save(10, write, healthy=healthy)]
told.append(checkpoints.due(11))
"""
    answers = world.run(SETUP + code, size=2, args=str(root))

    assert answers == [{"told": [True, True, False, True, True, False]}] * 2


def test_there_has_to_be_one_if_it_is_required(world, root):
    """An empty root is a fresh start, or an error that says why on every rank."""
    code = """
checkpoints = CheckpointDir(args)
fresh = checkpoints.load(lambda folder: 1 / 0)
try:
    checkpoints.load(lambda folder: 1 / 0, require=True)
except Exception as error:
    told = [fresh, type(error).__name__, "there is none" in str(error)]
"""
    answers = world.run(SETUP + code, size=2, args=str(root))

    assert answers == [{"told": [None, "NoValidCheckpoint", True]}] * 2


def test_what_write_raises_is_raised_at_once(world, root):
    """A collective that broke is not waited for; the others learn it at its end."""
    put(root, 1)
    code = """
def fill(folder):
    if rank == 1:
        raise OSError(28, "no space left on device")
    write(folder)

try:
    CheckpointDir(args).save(2, fill)
except OSError as error:
    open(f"{args}/raised", "w").close()
    os._exit(1)
except Exception as error:
    told = type(error).__name__
"""
    answers = world.run(SETUP + code, size=2, args=str(root))

    assert answers == [{"told": "PeerError"}, None]
    assert (root / "raised").exists()
    assert newest_valid(root).newest.step == 1


def test_dcp_goes_inside(world, root):
    """A distributed checkpoint in a directory of its own comes back on all ranks."""
    code = """
import torch.distributed.checkpoint as dcp
state = {"weights": torch.full((4,), 1.0), "step": 3}
checkpoints = CheckpointDir(args)
save = lambda folder: dcp.save(state, checkpoint_id=f"{folder}/dcp")
saved = checkpoints.save(3, save)
state["weights"] = torch.zeros(4)
checkpoints.load(lambda folder: dcp.load(state, checkpoint_id=f"{folder}/dcp"))
told = [saved, state["weights"].tolist(), kept()]
"""
    answers = world.run(SETUP + code, 2, args=str(root), limit_s=500)

    assert answers == [{"told": [True, [1.0] * 4, []]}] * 2
    files = json.loads((root / "step-00000003/manifest.json").read_text())["files"]
    assert {"dcp/.metadata", "dcp/__0_0.distcp"} <= {file["name"] for file in files}


def test_retention_counts_what_is_valid_and_keeps_it(world, root):
    """Three broken newer ones do not push out the two that can be resumed from."""
    for step in range(1, 6):
        put(root, step)
    for step in (3, 4, 5):
        (root / f"step-0000000{step}/rank-1.bin").unlink()
    code = "told = CheckpointDir(args, keep=2).save(6, write)"
    answers = world.run(SETUP + code, size=2, args=str(root))

    assert answers == [{"told": True}] * 2
    assert names(root) == ["latest"] + [f"step-0000000{step}" for step in range(2, 7)]


def test_alone_no_torch_is_needed(root, run):
    """A plain process saves and loads without importing it."""
    script = f"""
import sys
from pathlib import Path
from dsup_runtime.checkpoints.directory import CheckpointDir
checkpoints = CheckpointDir({str(root)!r})
assert checkpoints.save(1, lambda folder: Path(folder, "state").touch())
assert checkpoints.load(lambda folder: None).step == 1
assert "torch" not in sys.modules
"""
    assert run(script) == (0, "", "")


def test_alone_it_is_all_the_same(root):
    """One process saves and loads by the same rules, without a group."""
    checkpoints = CheckpointDir(root, every=2, keep=1)

    def write(folder):
        Path(folder, "state").write_text("state")

    assert [step for step in range(6) if checkpoints.due(step)] == [2, 3, 4, 5]
    assert [checkpoints.save(step, write) for step in (2, 4)] == [True, True]
    found = checkpoints.load(lambda folder: Path(folder, "state").read_text())
    assert found == newest_valid(root, checksums=True).newest
    assert [step for step in range(9) if checkpoints.due(step)] == [6, 7, 8]
