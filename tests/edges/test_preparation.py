"""What an attempt needs on disk, and what is said when it is not to be had."""

import os
import socket
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from dsup.edges import preparation
from dsup.edges.preparation import Found, Location
from dsup_runtime import checkpoints

JUNK = [
    pytest.param(b"[1, ", id="cut short"),
    pytest.param(b"[]", id="too few values"),
    pytest.param(b"\xff\xfe", id="no text"),
]


def save(directory, step):
    """Publish a checkpoint; return its path."""
    staged = checkpoints.begin(str(directory), step)
    Path(staged, "model.pt").write_bytes(b"weights")
    return Path(checkpoints.commit(staged, step).path)


def test_the_directories_of_an_attempt_are_made(tmp_path):
    """One a rank, and making them again is no error."""
    run_dir = tmp_path / "run"
    preparation.make_directories(str(run_dir), 3, 2)
    preparation.make_directories(str(run_dir), 3, 2)

    made = sorted(str(path.relative_to(run_dir)) for path in run_dir.rglob("*"))

    assert made == ["attempt_3", "attempt_3/0", "attempt_3/1"]


def test_a_temporary_name_is_short_and_new_each_time(tmp_path):
    """A unix socket's path has 107 bytes, and the user's share of them is the most."""
    names = {preparation.temporary_name("/tmp") for _ in range(100)}  # noqa: S108

    assert len(names) > 90
    assert max(map(len, names)) <= 20
    assert not any(map(os.path.exists, names))


def test_preparing_makes_a_private_directory(tmp_path):
    """Nobody else can read or plant what ranks keep there."""
    tmp_dir = tmp_path / "dsup-1"
    answer = preparation.prepare(sys.executable, str(tmp_dir))

    assert preparation.decode(answer) == Found()
    assert stat.S_IMODE(tmp_dir.stat().st_mode) == 0o700


@pytest.mark.parametrize("interpreter", ["python3", "", "relative/path"])
def test_a_program_found_by_its_name_is_not_opened(tmp_path, interpreter):
    """Which file it is will be known when it starts."""
    answer = preparation.prepare(interpreter, str(tmp_path / "t"))

    assert preparation.decode(answer) == Found()


def test_a_missing_interpreter_is_told(tmp_path):
    """The error names it."""
    missing = str(tmp_path / "python")
    found = preparation.decode(preparation.prepare(missing, str(tmp_path / "t")))

    assert "No such file" in found.error
    assert missing in found.error


@pytest.mark.parametrize(
    ("parent", "reason"),
    [
        pytest.param("none", "No such file", id="no such directory"),
        pytest.param("file", "Not a directory", id="a file"),
        pytest.param(".", "File exists", id="taken by somebody"),
    ],
)
def test_a_temporary_directory_that_cannot_be_made_is_told(tmp_path, parent, reason):
    """What is there already is never used."""
    (tmp_path / "file").touch()
    (tmp_path / "t").mkdir()
    tmp_dir = tmp_path / parent / "t"
    found = preparation.decode(preparation.prepare(sys.executable, str(tmp_dir)))

    assert reason in found.error


UNREADABLE = """
import os, sys
from dsup.edges import preparation
import json
os.setuid(65534)
print(preparation.decode(preparation.prepare(*sys.argv[1:])).error)
"""


@pytest.mark.root
def test_a_program_may_be_executable_without_being_readable():
    """It started in the first attempt, so it must in the next."""
    with tempfile.TemporaryDirectory() as shared:
        os.chmod(shared, 0o777)  # noqa: S103, another user works in it
        program = Path(shared, "program")
        program.touch(mode=0o711)
        done = subprocess.run(
            [sys.executable, "-c", UNREADABLE, str(program), f"{shared}/t"],
            capture_output=True,
            check=True,
            text=True,
        )

    assert done.stdout.strip() == ""


def test_the_newest_valid_checkpoint_is_found(tmp_path):
    """Newer ones that are not whole are passed over, and named."""
    older, newer = (save(tmp_path, step) for step in (10, 20))
    (newer / "model.pt").write_bytes(b"cut")

    found = preparation.decode(preparation.search(Location(str(tmp_path), "")))

    assert (found.step, found.path, found.error) == (10, str(older), "")
    assert len(found.rejected) == 1
    assert str(newer) in found.rejected[0]


@pytest.mark.slow
def test_a_foreign_checkpoint_is_found_by_its_pattern(tmp_path):
    """The highest number counts, not the name's order."""
    for step in (9, 10):
        (tmp_path / f"model-{step}.pt").write_bytes(b"x")
    pattern = str(tmp_path / "model-*.pt")

    found = preparation.decode(preparation.search(Location("", pattern)))

    assert (found.step, found.path) == (10, str(tmp_path / "model-10.pt"))


@pytest.mark.parametrize("which", ["directory", "pattern"])
def test_no_checkpoint_is_an_answer(tmp_path, which):
    """A job that has not saved yet starts anew, and that is no error."""
    empty = str(tmp_path)
    where = Location(empty, "") if which == "directory" else Location("", empty + "/*")

    assert preparation.decode(preparation.search(where)) == Found()


def link_to_itself(path):
    """Make a link that leads nowhere but to itself."""
    path.symlink_to(path)


@pytest.mark.parametrize(
    ("make", "refused"),
    [
        pytest.param(Path.touch, True, id="a file"),
        pytest.param(link_to_itself, False, id="what cannot be opened"),
    ],
)
def test_what_is_no_directory_is_told_from_storage_that_fails(tmp_path, make, refused):
    """Trying again cures the one perhaps, and the other never."""
    make(tmp_path / "ckpt")

    answer = preparation.search(Location(str(tmp_path / "ckpt"), ""))
    found = preparation.decode(answer)

    assert found.refused is refused
    assert found.error.startswith(f"cannot look for checkpoints in {tmp_path}/ckpt")
    assert found.step is None


@pytest.mark.root
def test_a_directory_of_somebody_else_is_no_failing_storage():
    """No permission now is none later."""
    with tempfile.TemporaryDirectory(prefix="t-") as shared:
        code = (
            "import os, sys; from dsup.edges import preparation; "
            "import dsup_runtime.checkpoints, json; os.setuid(65534); "
            "where = preparation.Location(sys.argv[1], ''); "
            "print(preparation.decode(preparation.search(where)).refused)"
        )
        done = subprocess.run(
            [sys.executable, "-c", code, shared],
            capture_output=True,
            check=True,
            text=True,
        )

    assert done.stdout == "True\n"


def test_checkpoints_of_another_layout_are_noticed(tmp_path):
    """A directory full of somebody else's checkpoints is not an empty one."""
    for name in ("step_5.pt", "step_10.pt", ".hidden", "latest"):
        (tmp_path / name).write_bytes(b"x")

    found = preparation.decode(preparation.search(Location(str(tmp_path), "")))

    assert found == Found(strangers=2)


def test_many_broken_checkpoints_are_told_in_few_words(tmp_path):
    """The answer has a limit, whatever lies in the directory."""
    for step in range(1, 21):
        (save(tmp_path, step) / "model.pt").write_bytes(b"")

    answer = preparation.search(Location(str(tmp_path), ""))

    assert len(preparation.decode(answer).rejected) == 8
    assert len(answer) < 65_536


def test_silence_is_an_error_of_its_own():
    """An aide that did not answer has looked for nothing."""
    found = preparation.decode(b"")

    assert found == Found(error="the file systems gave no answer")


@pytest.mark.parametrize("answer", JUNK)
def test_half_an_answer_is_no_answer(answer):
    """An aide that died while it spoke does not end the agent."""
    found = preparation.decode(answer)

    assert found == Found(error="an answer of the file systems was cut short")


def test_a_temporary_directory_goes_with_all_that_is_in_it(tmp_path):
    """Killed ranks leave files, sockets and directories without permissions."""
    tmp_dir = tmp_path / "dsup-1"
    (tmp_dir / "deep" / "er").mkdir(parents=True)
    (tmp_dir / "deep" / "file").write_bytes(b"x")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_dir / "s"))
    os.mkfifo(tmp_dir / "fifo")

    assert preparation.remove(str(tmp_dir)) == preparation.REMOVED
    assert not tmp_dir.exists()


@pytest.mark.root
def test_what_cannot_be_removed_is_not_said_to_be():
    """A rank that became another user may have left files of that user's."""
    with tempfile.TemporaryDirectory(prefix="t-") as shared:
        Path(shared).chmod(0o755)
        tmp_dir = Path(shared, "dsup-1")
        (tmp_dir / "of-root" / "deep").mkdir(parents=True)
        tmp_dir.chmod(0o777)
        code = (
            "import os, shutil, sys; from dsup.edges import preparation; "
            "os.setuid(65534); print(preparation.remove(sys.argv[1]))"
        )
        done = subprocess.run(
            [sys.executable, "-c", code, str(tmp_dir)],
            capture_output=True,
            check=True,
            text=True,
        )

        assert tmp_dir.exists()
    assert done.stdout == "b''\n"


def test_removing_follows_no_links(tmp_path):
    """A rank's link to the user's data takes none of it along."""
    data = tmp_path / "data"
    data.mkdir()
    (data / "precious").write_bytes(b"x")
    tmp_dir = tmp_path / "dsup-1"
    tmp_dir.mkdir()
    (tmp_dir / "link").symlink_to(data)
    link = tmp_path / "dsup-2"
    link.symlink_to(data)

    preparation.remove(str(tmp_dir))
    preparation.remove(str(link))

    assert not tmp_dir.exists()
    assert (data / "precious").exists()


def test_removing_what_is_not_there_is_no_error(tmp_path):
    """Somebody else may have tidied up before."""
    assert preparation.remove(str(tmp_path / "none")) == preparation.REMOVED
