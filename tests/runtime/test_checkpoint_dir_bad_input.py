"""What a root can be but should not: an error of ours on all ranks, nothing lost."""

import json
import logging
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import cast

import pytest

from dsup_runtime import deferred
from dsup_runtime.checkpoints import begin, commit, newest_valid
from dsup_runtime.checkpoints.directory import CheckpointDir
from dsup_runtime.errors import CheckpointError

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


def make_deep(folder, depth):
    """Make a directory in a directory, so many times, and a file in the last."""
    for _ in range(depth):
        folder += "/d"
        os.mkdir(folder)
    Path(folder, "state.pt").touch()


def make_file(root):
    root.write_text("precious")


def make_loop(root):
    root.symlink_to(root)


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.parametrize(
    ("make", "because"),
    [
        pytest.param(make_file, "not a directory", id="a file"),
        pytest.param(
            make_loop, "too many levels of symbolic links", id="a symlink loop"
        ),
    ],
)
def test_a_root_that_cannot_be_one_is_said_so_on_all_ranks(world, root, make, because):
    """A load raises on every rank; a save is given up on every rank, kept on main."""
    make(root)
    main, other = [answer["told"] for answer in world.run(BOTH, size=2, args=str(root))]

    for (error, words), saved, _ in (main, other):
        assert (error, saved) == ("CheckpointError", False)
        assert f"because {because} (choose a directory" in words
    assert [because in words for words in main[2]] == [True]
    assert other[2] == []


@pytest.mark.root
@pytest.mark.slow
def test_a_root_without_permission_is_said_so():
    """A user who may not write there is told, and nothing is there afterwards."""
    script = """
import logging, os, sys
from dsup_runtime import deferred
from dsup_runtime.checkpoints.directory import CheckpointDir
logging.disable()
checkpoints = CheckpointDir(sys.argv[1])
checkpoints.load(print)  # imports what only root may read here
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
print(checkpoints.save(1, print), deferred.first().error)
"""
    with tempfile.TemporaryDirectory() as root:
        Path(root).chmod(0o755)
        found = subprocess.run(
            [sys.executable, "-c", script, root],
            check=True,
            capture_output=True,
            text=True,
        )
        left = os.listdir(root)

    assert found.stdout == (
        f"False cannot begin a checkpoint in {root}, because permission denied"
        " (choose a directory that the job can write)\n"
    )
    assert left == []


def test_foreign_files_stay_as_they_are(root):
    """What dsup did not write is neither read, nor counted, nor removed."""
    root.mkdir()
    foreign = ["step-3", "step-00000009.pt", "best", ".hidden", "checkpoint-500"]
    for name in foreign:
        (root / name).mkdir()
        (root / name / "precious").touch()
    (root / "step-00000099").touch()
    (root / "step-00000098").symlink_to("/etc")
    checkpoints = CheckpointDir(root, keep=1)

    assert checkpoints.load(lambda _: None) is None
    assert [checkpoints.save(step, write) for step in (1, 2)] == [True, True]
    assert checkpoints.latest().step == 2
    assert all((root / name / "precious").exists() for name in foreign)
    assert (root / "step-00000099").exists()


def test_among_many_old_steps_only_the_newest_is_opened(root, run):
    """What a resumption costs does not grow with the steps that were kept."""
    for step in range(20):
        put(root, step)
    script = f"""
import sys
from dsup_runtime.checkpoints.directory import CheckpointDir
checkpoints, opened = CheckpointDir({str(root)!r}), set()
sys.addaudithook(
    lambda event, args: event == "open" and opened.add(str(args[0]).rpartition("/")[2])
)
told = checkpoints.latest().step, sum("manifest" in name for name in opened)
print(*told)
"""
    assert run(script) == (0, "19 1\n", "")


def test_a_newer_format_is_left_to_a_newer_dsup(root):
    """Neither an older one is resumed in its place, nor is it written over."""
    put(root, 1)
    newer = Path(put(root, 2).path, "manifest.json")
    newer.write_text(json.dumps(json.loads(newer.read_text()) | {"format": 2}))
    checkpoints = CheckpointDir(root)

    with pytest.raises(CheckpointError, match=r"format 2 is newer .*\(update dsup"):
        checkpoints.load(lambda _: None)
    assert not checkpoints.save(2, write)
    assert "format 2 is newer" in str(deferred.first().error)
    assert json.loads(newer.read_text())["format"] == 2


def test_a_step_behind_another_run_is_refused_before_it_is_pruned(root):
    """A run that did not resume cannot save under steps that are there already."""
    old = put(root, 500)
    checkpoints = CheckpointDir(root, keep=1)

    assert not checkpoints.save(20, lambda _: 1 / 0)
    assert "is newer: the step ran backwards, or another run" in str(
        deferred.first().error
    )
    assert newest_valid(root).newest == old


def test_a_step_behind_its_own_last_one_is_refused_without_ending_the_run(root, caplog):
    """After a rollback training passes the step again, and is not stopped for it."""
    checkpoints = CheckpointDir(root)
    assert checkpoints.save(20, write)

    with caplog.at_level(logging.WARNING):
        assert not checkpoints.save(19, lambda _: 1 / 0)
    assert "because step 20 was saved or loaded before it" in caplog.text
    assert "go on to step 21, or save it to another root" in caplog.text
    assert checkpoints.save(20, lambda _: 1 / 0)
    assert not deferred.has_deferred_error()


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param({name: value}, id=f"{name}={value!r}")
        for name, values in {
            "every": (0, -1, 2.5, float("nan"), True, "9"),
            "keep": (0, -3, float("nan"), None),
            "checksum": ("md5", None, float("nan")),
            "commit": ("copy", None),
            "visibility_s": (-1.0, float("nan"), float("inf")),
        }.items()
        for value in values
    ],
)
def test_wrong_settings_are_refused(root, wrong):
    """Each names the setting and what it may be, before anything is touched."""
    with pytest.raises(ValueError, match=f"^cannot set {next(iter(wrong))} to "):
        CheckpointDir(root, **wrong)
    assert not root.exists()


@pytest.mark.parametrize("step", [-1, float("nan"), 2.0, "3", None])
def test_what_is_no_step_is_refused(root, step):
    """A number that names no step reaches neither the disk nor the other ranks."""
    with pytest.raises((ValueError, TypeError)):
        CheckpointDir(root).save(step, write)
    assert not root.exists()


@pytest.mark.parametrize(
    "meta",
    [
        pytest.param({"loss": float("nan")}, id="nan"),
        pytest.param({"loss": {1, 2}}, id="a set"),
    ],
)
def test_a_meta_that_json_cannot_hold_costs_the_save(root, meta):
    """The error waits, nothing is written, and the checkpoint before is unharmed."""
    before = put(root, 1)

    assert not CheckpointDir(root).save(2, lambda _: 1 / 0, meta=meta)
    assert "JSON cannot hold its meta" in str(deferred.first().error)
    assert newest_valid(root).newest == before


@pytest.mark.parametrize(
    ("spoil", "because"),
    [
        pytest.param(lambda _: None, "it holds no files", id="nothing written"),
        pytest.param(
            lambda folder: os.symlink("loop", f"{folder}/loop"),
            "loop is no file or directory",
            id="a symlink loop",
        ),
        pytest.param(
            lambda folder: Path(folder, "manifest.json").touch(),
            "manifest.json is dsup's own name",
            id="its manifest",
        ),
        pytest.param(
            lambda folder: Path(folder, "rank-00000.json").touch(),
            "rank-00000.json is dsup's own name (write the state to another",
            id="its rank file",
        ),
        pytest.param(
            lambda folder: Path(folder, "rank-00005.json").touch(),
            "rank-00005.json is dsup's own name",
            id="a rank file of more ranks",
        ),
        pytest.param(
            lambda folder: make_deep(folder, 102),
            "lies deeper than 100 directories",
            id="a tree without end",
        ),
        pytest.param(
            lambda folder: os.mkfifo(f"{folder}/pipe"),
            "pipe is no file or directory",
            id="a pipe",
        ),
    ],
)
def test_what_write_must_not_leave_costs_the_save(root, spoil, because):
    """Each is named, no wait follows, and the checkpoint before is unharmed."""
    before = put(root, 1)

    assert not CheckpointDir(root).save(2, spoil)
    assert because in str(deferred.first().error)
    assert newest_valid(root).newest == before


def test_a_meta_that_nobody_would_read_costs_the_save(root):
    """What no load accepts is not published, and nothing is written for it."""
    before = put(root, 1)

    assert not CheckpointDir(root).save(
        2, lambda _: 1 / 0, meta={"x": "a" * (17 << 20)}
    )
    assert "16777216 are the most that is read" in str(deferred.first().error)
    assert CheckpointDir(root).load(lambda _: None) == before


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda path: os.truncate(path, (16 << 20) + 1), id="too large"),
        pytest.param(lambda path: path.write_text("[" * 100_000), id="too deep"),
    ],
)
def test_what_is_too_large_to_read_is_not_called_damaged(root, spoil):
    """It stays where it is, and training does not begin anew beside it."""
    path = Path(put(root, 1).path, "manifest.json")
    spoil(path)

    with pytest.raises(CheckpointError, match=r"is not damaged: .*cannot be read"):
        CheckpointDir(root).load(lambda _: None)
    assert path.exists()


def test_a_number_of_another_library_is_a_step(root):
    """What Python takes as an index reaches names and manifest as a plain number."""

    class Number:
        def __index__(self):
            return 7

    assert CheckpointDir(root).save(cast(int, Number()), write)
    assert newest_valid(root).newest.step == 7
