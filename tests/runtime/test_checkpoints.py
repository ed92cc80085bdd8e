"""Half a checkpoint is never mistaken for a whole one, whatever happened to it."""

import json
import os
import subprocess
import sys
import zlib

import pytest

from dsup_runtime import checkpoints
from dsup_runtime.checkpoints import (
    Checkpoint,
    CheckpointError,
    begin,
    commit,
    newest_valid,
    prune,
    verify,
)


def write(root, step, *, attempt=0, meta=None):
    """Commit a checkpoint of two files, one of them in a directory of its own."""
    tmp = begin(root, step, attempt=attempt)
    for name in ("state.pt", "dcp/__0_0.distcp"):
        path = os.path.join(tmp, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(b"%d " % step * 100)
    return commit(tmp, step, meta=meta)


def names(root):
    return sorted(os.listdir(root))


@pytest.fixture
def root(tmp_path):
    return tmp_path / "checkpoints"


def test_a_committed_checkpoint_is_found_with_all_that_was_said_about_it(root):
    """The manifest names every file with its size and sum, the attempt and the meta."""
    committed = write(root, 2000, attempt=3, meta={"loss": 1.5})

    assert committed == Checkpoint(2000, str(root / "step-00002000"))
    assert newest_valid(root) == (committed, ())
    assert names(root) == ["latest", "step-00002000"]
    assert (root / "latest").read_text() == "step-00002000\n"
    manifest = json.loads((root / "step-00002000/manifest.json").read_text())
    crc = f"{zlib.crc32(b'2000 ' * 100):08x}"
    assert manifest["files"] == [
        {"name": "dcp/__0_0.distcp", "bytes": 500, "crc32": crc},
        {"name": "state.pt", "bytes": 500, "crc32": crc},
    ]
    assert [manifest[key] for key in ("format", "step", "attempt", "meta")] == [
        1,
        2000,
        3,
        {"loss": 1.5},
    ]


def test_no_root_is_no_checkpoint(root):
    """Before the first save there is nothing to resume from, and that is no error."""
    assert newest_valid(root) == (None, ())


def test_newest_is_the_highest_number_not_the_longest_name(root):
    """Steps are compared as numbers, and above eight digits too."""
    for step in (99_999_999, 100_000_000, 7):
        write(root, step)

    assert newest_valid(root).newest.step == 100_000_000


def test_links_and_foreign_names_are_passed_over(root):
    """Nothing but a directory of the right name is ever looked into."""
    committed = write(root, 1)
    (root / "step-00000002").symlink_to(committed.path)
    (root / "step-00000003").touch()
    for name in ("step-4", "step-0000000x", "checkpoint-5", "step-" + "9" * 400):
        (root / name[:200]).mkdir()

    assert newest_valid(root) == (committed, ())
    assert verify(root / "step-00000002") == "it is not a directory"


def test_latest_is_a_hint_and_never_the_truth(root):
    """Neither garbage in it, nor its being unwritable, changes anything."""
    write(root, 1)
    (root / "latest").write_bytes(b"\xff../../etc")
    assert newest_valid(root).newest.step == 1

    (root / "latest").unlink()
    (root / "latest").mkdir()
    assert write(root, 2) == newest_valid(root).newest


def test_a_valid_step_stays_when_it_is_written_again(root):
    """The first commit of a step wins; the second leaves nothing behind."""
    write(root, 1, meta={"by": "first"})
    write(root, 1, attempt=1, meta={"by": "second"})

    manifest = json.loads((root / "step-00000001/manifest.json").read_text())
    assert manifest["meta"] == {"by": "first"}
    assert names(root) == ["latest", "step-00000001"]


def test_a_broken_step_makes_room_and_is_kept_aside(root):
    """What stood in the way is renamed, never deleted before the new one stands."""
    write(root, 1)
    (root / "step-00000001/state.pt").unlink()
    write(root, 1, attempt=1)

    assert verify(root / "step-00000001", checksums=True) is None
    assert names(root) == ["latest", "step-00000001", "step-00000001.corrupt"]


def test_a_rename_repeated_by_nfs_is_no_failure(root):
    """A server that lost its answer says ENOENT about a rename that it has done."""

    def rename_twice(source, target):
        os.rename(source, target)
        os.rename(source, target)

    made = write(root, 1)
    tmp = f"{root}/.tmp-00000001-1"
    os.rename(made.path, tmp)
    checkpoints._publish(tmp, made.path, rename=rename_twice)  # noqa: SLF001 no NFS here
    assert newest_valid(root).newest == made

    with pytest.raises(FileNotFoundError):
        checkpoints._publish(tmp, f"{root}/step-00000002")  # noqa: SLF001


def test_begin_removes_what_older_attempts_left_and_nothing_else(root):
    """A newer attempt's directory is safe from a straggler of an older one."""
    for leftover in (".tmp-00000005-0", ".tmp-00000006-1", ".tmp-00000007-2"):
        (root / leftover / "dcp").mkdir(parents=True)

    assert begin(root, 6, attempt=1) == str(root / ".tmp-00000006-1")
    assert names(root) == [".tmp-00000006-1", ".tmp-00000007-2"]
    assert names(root / ".tmp-00000006-1") == []


def test_prune_counts_valid_checkpoints_only_and_leaves_the_broken(root):
    """Three broken newer ones do not push out the two that can be resumed from."""
    for step in range(1, 7):
        write(root, step)
    for step in (4, 5, 6):
        (root / f"step-0000000{step}/state.pt").unlink()

    assert prune(root, keep=2) == (str(root / "step-00000001"),)
    assert names(root) == ["latest"] + [f"step-0000000{step}" for step in range(2, 7)]


def test_prune_never_removes_the_newest_valid_one(root):
    """Not even when nothing is to be kept."""
    write(root, 1)
    write(root, 2)

    assert prune(root, keep=0) == (str(root / "step-00000001"),)
    assert newest_valid(root).newest.step == 2


def test_prune_clears_what_crashes_left_but_no_save_in_progress(root):
    """A temporary directory up to the newest step can not become a checkpoint."""
    write(root, 2)
    for leftover in (".tmp-00000001-0", ".tmp-00000003-0", ".trash-x"):
        (root / leftover / "deep").mkdir(parents=True)
        (root / leftover / "deep/link").symlink_to(root / "step-00000002")

    prune(root)

    assert names(root) == [".tmp-00000003-0", "latest", "step-00000002"]
    assert verify(root / "step-00000002") is None


def break_nothing(tmp):
    return {}


@pytest.mark.parametrize(
    ("spoil", "arguments", "because"),
    [
        pytest.param(
            lambda tmp: os.unlink(f"{tmp}/state.pt"),
            {},
            "it holds no files",
            id="empty",
        ),
        pytest.param(
            lambda tmp: os.symlink("/etc/passwd", f"{tmp}/link"),
            {},
            "link is no file or directory",
            id="link",
        ),
        pytest.param(
            lambda tmp: os.link(f"{tmp}/state.pt", f"{tmp}/manifest.json"),
            {},
            "manifest.json is dsup's own name",
            id="own manifest",
        ),
        pytest.param(
            break_nothing, {"meta": {"loss": float("nan")}}, "JSON cannot", id="nan"
        ),
        pytest.param(
            break_nothing,
            {"meta": {"x": "a" * (17 << 20)}},
            "bytes of JSON and 16777216 are the most that is read",
            id="a meta nobody would read",
        ),
        pytest.param(break_nothing, {"meta": {"x": {1}}}, "JSON cannot", id="no JSON"),
        pytest.param(break_nothing, {"step": 8}, "begin did not make it", id="step"),
    ],
)
def test_what_can_not_become_a_checkpoint_is_refused(root, spoil, arguments, because):
    """The error says why, and what was committed before is unharmed."""
    before = write(root, 1)
    tmp = begin(root, 2)
    (root / ".tmp-00000002-0/state.pt").write_bytes(b"state")
    spoil(tmp)

    with pytest.raises(CheckpointError, match=f"^cannot commit .*{because}"):
        commit(tmp, **{"step": 2} | arguments)
    assert newest_valid(root).newest == before


def test_a_root_that_is_a_file_is_named_by_every_call(root):
    """Each error says what cannot be done, why, and what to do."""
    root.write_text("")
    for call in (newest_valid, prune, lambda path: begin(path, 1)):
        with pytest.raises(CheckpointError, match=r"^cannot .*, because .* \(choose a"):
            call(root)


def test_a_step_below_zero_is_refused(root):
    """A name is made of the step, so it must be one."""
    with pytest.raises(CheckpointError, match="because -1 is no step number"):
        begin(root, -1)


def test_importing_the_rules_is_cheap():
    """The agent's aide imports them: nothing heavier than json comes along."""
    program = "import sys, dsup_runtime.checkpoints; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    ).stdout.split()

    assert not {"pathlib", "tempfile", "shutil", "glob", "torch"} & set(loaded)
