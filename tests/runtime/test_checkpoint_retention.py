"""Which checkpoints stay, and how damaged ones are put aside."""

import os
import subprocess
from pathlib import Path

import pytest

from dsup_runtime.checkpoints import begin, commit, newest_valid, prune, set_aside
from dsup_runtime.checkpoints.directory import CheckpointDir
from dsup_runtime.checkpoints.files import Storage
from dsup_runtime.checkpoints.retention import empty_trash, retire
from dsup_runtime.errors import CheckpointError


def write(root, *steps, storage=None):
    """Commit checkpoints of one file."""
    storage = storage or Storage()
    for step in steps:
        tmp = begin(root, step, storage=storage)
        Path(tmp, "state.pt").write_bytes(b"state")
        commit(tmp, step, storage=storage)


def fill(folder):
    Path(folder, "state.pt").write_bytes(b"state")


def steps(root):
    """Return the numbers of the checkpoints that are there."""
    return sorted(int(name[5:]) for name in os.listdir(root) if name[:5] == "step-")


@pytest.fixture
def root(tmp_path):
    return tmp_path / "checkpoints"


def test_a_pinned_checkpoint_stays_for_good(root):
    """A file of that name is enough, and it is not counted against the others."""
    write(root, 1, 2, 3, 4)
    (root / "step-00000002/pinned").touch()

    assert prune(root, keep=1) == (
        str(root / "step-00000003"),
        str(root / "step-00000001"),
    )
    assert steps(root) == [2, 4]


def test_the_one_that_latest_names_stays(root):
    """Other programs follow the hint, even where it lags behind."""
    write(root, 1, 2, 3, 4)
    (root / "latest").write_text("step-00000002\n")

    prune(root, keep=1)
    assert steps(root) == [2, 4]


def test_deleting_can_be_left_for_later(root):
    """What is retired is out of sight at once, and its bytes go in their own time."""
    write(root, 1, 2)
    retire(root, keep=1)
    assert steps(root) == [2]
    assert [name for name in os.listdir(root) if name.startswith(".trash-step")]

    empty_trash(root)
    assert sorted(os.listdir(root)) == ["latest", "step-00000002"]


def test_emptying_the_trash_never_fails(tmp_path):
    """It goes on beside the training, which it must not disturb."""
    empty_trash(tmp_path / "nowhere")


def test_what_is_put_aside_never_replaces_what_was(root):
    """A step may be damaged twice; both stay, and neither is found again."""
    for _ in range(3):
        write(root, 1)
        set_aside(str(root / "step-00000001"))

    assert sorted(os.listdir(root)) == [
        "latest",
        "step-00000001.corrupt",
        "step-00000001.corrupt-2",
        "step-00000001.corrupt-3",
    ]
    assert newest_valid(root) == (None, ())


def test_without_a_rename_nothing_whole_is_begun_anew(root):
    """Its files would be gone before the new ones are there."""
    storage = Storage(rename=False)
    write(root, 1, storage=storage)

    with pytest.raises(CheckpointError, match="because it is whole"):
        begin(root, 1, storage=storage)
    assert steps(root) == [1]


@pytest.mark.parametrize("how", ["rename", "manifest"])
def test_a_foreign_directory_in_the_way_is_put_aside(root, how):
    """A user's file in a directory of a step's name outlives saves of any step."""
    for step in (1, 100):
        (root / f"step-{step:08d}").mkdir(parents=True)
        (root / f"step-{step:08d}/precious").touch()
    checkpoints = CheckpointDir(root, commit=how, keep=1)

    assert [checkpoints.save(step, fill) for step in (100, 101)] == [True, True]
    assert (root / "step-00000001/precious").exists()
    assert (root / "step-00000100.corrupt/precious").exists()


def test_what_a_crash_left_is_deleted_however_deep(root):
    """A tree deeper than Python recurses neither stops a save nor stays."""
    folder = begin(root, 1)
    try:
        for _ in range(1300):
            folder += "/d"
            os.mkdir(folder)
        assert CheckpointDir(root).save(1, fill)
        assert sorted(os.listdir(root)) == ["latest", "step-00000001"]
    finally:  # pytest could not
        subprocess.run(["rm", "-rf", root], check=True)
