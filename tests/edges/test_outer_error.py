"""The outer error file: what torchrun would put there, or the verdict, or nothing."""

import json
import os
import pwd
import resource
import stat
import subprocess
import sys
import textwrap

import pytest

from dsup.edges import outer_error

TOLD = outer_error.fallback("Rank 2 ran out of memory.", 2, -9, 1_700_000_000.9)
RECORDED = {
    "message": {
        "message": "ValueError: bad",
        "extraInfo": {"py_callstack": "Traceback\nE", "timestamp": "1700000000"},
    }
}
PLAIN = {"message": "lost a socket", "timestamp": 1_700_000_000}

TORCH = """
    import json, sys
    from torch.distributed.elastic.multiprocessing import errors

    source, code, *targets = sys.argv[1:]
    if source:
        errors.get_error_handler().dump_error_file(source, int(code))
    for target in targets:
        failure = errors.ProcessFailure(0, 7, int(code), target)
        told = errors.ChildFailedError("train.py", {5: failure}).format_msg()
        print(json.dumps([failure.timestamp, told]))
"""


@pytest.fixture
def first(tmp_path):
    """The first rank's error.json; torch writes its own beside it."""
    return tmp_path / "error.json"


@pytest.fixture
def target(tmp_path):
    """Where the outer launcher looks."""
    return tmp_path / "outer.json"


def torch_reads(source, code, *targets, **environment):
    """Have torch copy an error file, then read some; return what it makes of them."""
    ran = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(TORCH), source, str(code), *targets],
        capture_output=True,
        check=True,
        env=os.environ | environment,
    )
    return [json.loads(line) for line in ran.stdout.splitlines()]


def names(directory):
    """Return what is in a directory: nothing unfinished may stay."""
    return sorted(path.name for path in directory.iterdir())


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.parametrize(
    ("recorded", "code"),
    [
        pytest.param(RECORDED, 1, id="an exception"),
        pytest.param(RECORDED, -11, id="an exception, then a signal"),
        pytest.param(RECORDED, 0, id="no exit code"),
        pytest.param(PLAIN, 1, id="only a text, which gets no exit code"),
    ],
)
def test_what_a_rank_recorded_is_handed_on_as_torchrun_does(
    first, target, recorded, code
):
    """The content is the same as torch's own copy, and torch reads it."""
    first.write_text(json.dumps(recorded))
    theirs = target.with_name("theirs.json")

    answer = outer_error.work(str(first), str(target), TOLD, code)
    (reading,) = torch_reads(
        str(first), code, str(target), TORCHELASTIC_ERROR_FILE=str(theirs)
    )

    assert answer == b"copied"
    assert json.loads(target.read_bytes()) == json.loads(theirs.read_bytes())
    assert reading[0] == 1_700_000_000


@pytest.mark.torch
@pytest.mark.slow
def test_torch_reads_a_verdict(first, target):
    """Where the rank recorded nothing, the outer launcher shows dsup's verdict."""
    answer = outer_error.work(str(first), str(target), TOLD, -9)
    ((timestamp, shown),) = torch_reads("", -9, str(target))

    assert answer == b"told"
    assert timestamp == 1_700_000_000
    assert "traceback : Rank 2 ran out of memory." in shown


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"{", id="cut"),
        pytest.param(b"\xff\xfe\x00", id="no text"),
        pytest.param(b"[" * 500_000, id="deep"),
        pytest.param(b"[1]", id="no object"),
        pytest.param(b"{}", id="no message"),
        pytest.param(b'{"message": {"message": "x"}}', id="no extra info"),
        pytest.param(b'{"message": {"extraInfo": {}}}', id="no time"),
        pytest.param(
            b'{"message": {"extraInfo": {"timestamp": "soon"}}}', id="no number"
        ),
        pytest.param(b'{"message": "x", "timestamp": 1e300}', id="no date"),
        pytest.param(b'{"message": "x", "timestamp": NaN}', id="not a number"),
        pytest.param(
            b'{"message": {"extraInfo": {"timestamp": 1, "py_callstack": null}}}',
            id="no call stack",
        ),
        pytest.param(json.dumps({"message": "x" * (1 << 20)}).encode(), id="1 MiB"),
    ],
)
def test_a_file_that_torch_cannot_read_is_not_handed_on(first, target, content):
    """An outer launcher would break off at such a file: the verdict is told."""
    first.write_bytes(content)

    assert outer_error.work(str(first), str(target), TOLD, 1) == b"told"
    assert target.read_bytes() == TOLD


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(str, id="not there"),
        pytest.param(os.mkfifo, id="pipe"),
        pytest.param(os.mkdir, id="directory"),
        pytest.param(lambda path: os.symlink(__file__, path), id="link"),
        pytest.param(lambda path: os.symlink("/dev/zero", path), id="link to a device"),
    ],
)
def test_no_error_file(first, target, make):
    """What is no regular file is not read, and nobody waits for it."""
    make(first)

    assert outer_error.work(str(first), str(target), TOLD, 1) == b"told"
    assert target.read_bytes() == TOLD


def test_nothing_to_tell(target):
    """Without an error file and without a verdict nothing is written."""
    assert outer_error.work("", str(target), b"", 1) == b"nothing"
    assert not target.exists()


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(os.mkfifo, id="pipe"),
        pytest.param(os.mkdir, id="directory"),
        pytest.param(lambda path: os.symlink(f"{path}.other", path), id="link"),
    ],
)
def test_what_is_there_and_no_file_stays(target, make):
    """Only a regular file is replaced; the answer says why nothing was written."""
    make(target)
    before = target.lstat()

    answer = outer_error.work("", str(target), TOLD, 1).decode()

    assert answer.startswith(f"cannot write {target}, because something is there")
    assert (target.lstat().st_ino, target.lstat().st_mode) == (
        before.st_ino,
        before.st_mode,
    )
    assert names(target.parent) == [target.name]


@pytest.mark.root
def test_a_device_stays(target):
    """A device, as /dev/null is for those who want no file, is not replaced."""
    os.mknod(target, stat.S_IFCHR | 0o666, os.makedev(1, 3))

    answer = outer_error.work("", str(target), TOLD, 1)

    assert b"something is there" in answer
    assert stat.S_ISCHR(target.stat().st_mode)


def test_a_disk_without_room(target):
    """What cannot be written whole is not there at all; the older file stays."""
    target.write_bytes(b"old")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, before[1]))
    try:
        answer = outer_error.work("", str(target), TOLD, 1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)

    assert b"because file too large" in answer
    assert target.read_bytes() == b"old"
    assert names(target.parent) == [target.name]


def test_an_older_file_is_replaced(target):
    """An error file of before is replaced whole, as torchrun does."""
    target.write_text("of an earlier run, and longer than what comes now" * 99)
    target.chmod(0o600)

    assert outer_error.work("", str(target), TOLD, 1) == b"told"
    assert target.read_bytes() == TOLD
    assert names(target.parent) == [target.name]


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        pytest.param("gone/outer.json", "no such file or directory", id="no directory"),
        pytest.param("file/outer.json", "not a directory", id="below a file"),
        pytest.param("n" * 300, "file name too long", id="no name"),
    ],
)
def test_a_target_that_cannot_be(tmp_path, path, reason):
    """A target that cannot be written is said, and leaves nothing behind."""
    (tmp_path / "file").touch()
    target = tmp_path / path

    answer = outer_error.work("", str(target), TOLD, 1).decode()

    assert answer == f"cannot write {target}, because {reason}"
    assert names(tmp_path) == ["file"]


@pytest.mark.root
def test_a_directory_without_leave(tmp_path):
    """A user without leave to write there is told so, and the file stays."""
    tmp_path.chmod(0o755)
    target = tmp_path / "outer.json"
    target.write_bytes(b"old")
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.chdir(tmp_path)  # where the directories above let nobody through
            os.setuid(pwd.getpwnam("nobody").pw_uid)
            os.write(writer, outer_error.work("", target.name, TOLD, 1))
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader, "rb") as answer:
        assert b"permission denied" in answer.read()
    os.waitpid(pid, 0)
    assert target.read_bytes() == b"old"


@pytest.mark.parametrize(
    ("wall_s", "timestamp"),
    [
        pytest.param(12.9, "12", id="whole seconds"),
        pytest.param(-5.0, "0", id="before the epoch"),
        pytest.param(1e300, str(outer_error.TIMESTAMP_MAX), id="no date"),
    ],
)
def test_a_verdict_as_torch_has_it(wall_s, timestamp):
    """A verdict stands where torch has message and call stack, with rank and code."""
    told = json.loads(outer_error.fallback("Rank 3: bad.", 3, 7, wall_s))

    assert told == {
        "message": {
            "message": "Rank 3: bad.",
            "errorCode": 7,
            "extraInfo": {
                "py_callstack": "Rank 3: bad.",
                "timestamp": timestamp,
                "rank": "3",
            },
        }
    }
