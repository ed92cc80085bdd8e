"""What disks do to checkpoints: full, read-only, elsewhere; nothing is lost."""

import os
import subprocess
from pathlib import Path

import pytest

from dsup_runtime import deferred
from dsup_runtime.checkpoints import begin, commit, newest_valid
from dsup_runtime.checkpoints.directory import CheckpointDir

pytestmark = [pytest.mark.root, pytest.mark.slow]

SETUP = """
import logging
from dsup_runtime import deferred
from dsup_runtime.checkpoints.directory import CheckpointDir
logging.disable()

def write(folder):
    with open(f"{folder}/rank-{rank}.bin", "wb") as file:
        file.write(bytes([rank]) * 1000)

def load(checkpoints):
    try:
        return checkpoints.load(lambda _: None)
    except Exception as error:
        return [type(error).__name__, str(error)]

def save(checkpoints, step=5):
    saved = checkpoints.save(step, write)
    return [saved, [str(each.error) for each in deferred.all_kept()]]
"""
BOTH = (
    SETUP
    + """
checkpoints = CheckpointDir(args)
told = [load(checkpoints), *save(checkpoints)]
"""
)


def write(folder):
    Path(folder, "state.pt").write_bytes(b"state" * 100)


def put(root, step):
    """Commit a checkpoint with this process alone."""
    tmp = begin(root, step)
    write(tmp)
    return commit(tmp, step)


@pytest.fixture
def root(tmp_path):
    return tmp_path / "checkpoints"


@pytest.fixture(autouse=True)
def quiet():
    """Errors kept in one test are none of the next."""
    deferred.clear()
    yield
    deferred.clear()


@pytest.fixture
def mounted(root):
    """Mount a file system of its own at the root."""
    root.mkdir()

    def mount(options):
        command = ["mount", "-t", "tmpfs", "-o", options, "none", str(root)]
        subprocess.run(command, check=True)

    yield mount
    while os.path.ismount(root):
        # Lazily: old checkpoints may still be being deleted there.
        subprocess.run(["umount", "--lazy", str(root)], check=True)


@pytest.mark.torch
def test_a_read_only_root_can_be_loaded_from_but_not_saved_to(world, root, mounted):
    """What is there is found, though a damaged one cannot be put aside."""
    mounted("size=1m")
    for step in (1, 2, 3):
        put(root, step)
    (root / "step-00000003/state.pt").unlink()
    subprocess.run(["mount", "-o", "remount,ro", str(root)], check=True)
    main, other = [answer["told"] for answer in world.run(BOTH, size=2, args=str(root))]

    assert main[:2] == other[:2] == [[2, str(root / "step-00000002")], False]
    assert "read-only file system (choose a directory" in main[2][0]
    assert newest_valid(root).newest.step == 2


SAVES = (
    SETUP
    + """
checkpoints = CheckpointDir(args["root"], keep=9)
def fill(folder):
    if rank == args["writer"]:
        with open(f"{folder}/state.pt", "wb") as file:
            file.write(bytes(100))
try:
    saved = checkpoints.save(2, fill)
except Exception as error:
    saved = type(error).__name__
    if rank == args["writer"]:
        os._exit(1)
told = [saved, [str(each.error) for each in deferred.all_kept()]]
"""
)


@pytest.mark.torch
@pytest.mark.parametrize(
    ("inodes", "expected"),
    [
        pytest.param(0, ["begin a checkpoint", False, False], id="main's directory"),
        pytest.param(1, [None, None, "PeerError"], id="main's state"),
        pytest.param(1, [None, "PeerError", None], id="rank 1's state"),
        pytest.param(2, ["write the checkpoint", False, False], id="both rank files"),
        pytest.param(3, ["write the checkpoint", False, False], id="one rank file"),
        pytest.param(4, ["commit ", False, False], id="the manifest"),
        pytest.param(5, [None, True, True], id="latest"),
        pytest.param(6, [None, True, True], id="all fits"),
    ],
)
def test_a_disk_that_is_full_in_any_phase_costs_the_save_alone(
    world, root, mounted, inodes, expected
):
    """ENOSPC anywhere: the same answer on all ranks, and the one before stays."""
    mounted("size=2m")
    put(root, 1)
    used = os.statvfs(root)
    limit = used.f_files - used.f_ffree + inodes
    remount = ["mount", "-o", f"remount,nr_inodes={limit}", str(root)]
    subprocess.run(remount, check=True)
    task, main, other = expected
    args = {"root": str(root), "writer": int(other is None)}
    answers = world.run(SAVES, size=2, args=args)

    told = [answer["told"] if answer else [None, []] for answer in answers]
    assert [told[0][0], told[1][0]] == [main, other]
    errors = [words for _, kept in told for words in kept]
    assert bool(errors) is bool(task)
    assert all(f"cannot {task}" in words for words in errors)
    assert all("no space left on device (free some space" in each for each in errors)
    assert newest_valid(root, checksums=True).newest.step == (2 if main is True else 1)
    subprocess.run(["mount", "-o", "remount,nr_inodes=999", str(root)], check=True)
    assert CheckpointDir(root).save(3, write)
    assert newest_valid(root, checksums=True).newest.step == 3


FULL_FOR_ONE = """
import ctypes, subprocess
def fill(folder):
    write(folder)
    if rank == args["full"]:
        libc = ctypes.CDLL(None, use_errno=True)
        assert libc.unshare(0x20000) == 0  # CLONE_NEWNS: for this rank only
        for options in (["--make-rprivate", "/"],
                        ["-t", "tmpfs", "-o", "nr_inodes=1", "none", folder]):
            subprocess.run(["mount", *options], check=True)

checkpoints = CheckpointDir(args["root"])
saved = checkpoints.save(2, fill)
told = [saved, [str(each.error) for each in deferred.all_kept()]]
"""


@pytest.mark.torch
@pytest.mark.parametrize("full", [0, 1], ids=["main", "rank 1"])
def test_a_disk_that_is_full_for_one_rank_costs_all_the_save(world, root, full):
    """The rank whose file has no room keeps the error; nobody publishes."""
    put(root, 1)
    args = {"root": str(root), "full": full}
    answers = world.run(SETUP + FULL_FOR_ONE, size=2, args=args)

    (saved, errors), (others, none) = answers[full]["told"], answers[1 - full]["told"]
    assert (saved, others, none) == (False, False, [])
    assert ["no space left on device" in words for words in errors] == [True]
    assert newest_valid(root, checksums=True).newest.step == 1


def test_what_cannot_be_retired_is_a_warning(root, caplog):
    """An old checkpoint that somebody mounted costs a line, not the new one."""
    old = put(root, 1).path
    subprocess.run(["mount", "--bind", old, old], check=True)
    try:
        assert CheckpointDir(root, keep=1).save(2, write)
    finally:
        subprocess.run(["umount", "--lazy", old], check=True)
    assert f"cannot prune checkpoints in {root}, because device or" in caplog.text
    assert newest_valid(root).newest.step == 2


def test_less_room_than_the_last_one_took_is_seen_before_the_write(root, mounted):
    """The save fails where it can be waited for, not half-way in a collective."""
    mounted("size=1m")

    def fill(folder):
        Path(folder, "state.pt").write_bytes(bytes(600_000))

    checkpoints = CheckpointDir(root)
    assert checkpoints.save(1, fill)
    assert not checkpoints.save(2, lambda _: 1 / 0)
    assert "the last one took 600000 (free some space" in str(deferred.first().error)


def test_a_root_on_another_device_behind_a_link_is_no_trouble(root, mounted, tmp_path):
    """Files are written where they stay, so publishing never crosses devices."""
    mounted("size=1m")
    link = tmp_path / "link"
    link.symlink_to(root)

    assert CheckpointDir(link).save(1, write)
    assert newest_valid(link) == newest_valid(tmp_path / "link")
    assert os.lstat(root).st_dev != os.lstat(link).st_dev
