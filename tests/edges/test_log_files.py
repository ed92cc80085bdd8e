"""Log files: found, opened, refused."""

import gzip
import os
import threading

import pytest

from dsup.edges.log_files import Caps, LogFiles, present


def read(*paths) -> tuple[list[tuple[str, bytes]], list[str]]:
    files = LogFiles([str(path) for path in paths])
    found = [(os.path.basename(line.file), line.data) for line in files.lines()]
    return found, files.remarks


def test_a_file_is_read(tmp_path):
    """By its name as it was given."""
    path = tmp_path / "any.name"
    path.write_text("a\nb\n")
    files = LogFiles([str(path)])

    assert [(line.file, line.number) for line in files.lines()] == [
        (str(path), 1),
        (str(path), 2),
    ]
    assert files.bytes_read == 4
    assert files.remarks == []


def test_a_directory_is_searched_for_logs(tmp_path):
    """Below it too; rank 10 comes after rank 9, other files are left alone."""
    (tmp_path / "a" / "b").mkdir(parents=True)
    for name in ("a/rank_10.log", "a/rank_9.log", "a/b/stderr", "model.pt", "a/x.py"):
        (tmp_path / name).write_text(name)
    found, remarks = read(tmp_path)

    assert [name for name, _ in found] == ["stderr", "rank_9.log", "rank_10.log"]
    assert remarks == []


def test_a_file_that_is_named_twice_is_read_once(tmp_path):
    """By itself and by its directory."""
    (tmp_path / "x.log").write_text("a\n")

    assert read(tmp_path / "x.log", tmp_path)[0] == [("x.log", b"a")]


def test_a_link_that_the_user_names_is_followed(tmp_path):
    """``latest.log`` points at the run on purpose; one inside a directory does not."""
    (tmp_path / "real.txt").write_text("hello\n")
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "link.log").symlink_to(tmp_path / "real.txt")
    (logs / "loop").symlink_to(logs)
    (tmp_path / "latest").symlink_to(logs)

    assert read(logs / "link.log")[0] == [("link.log", b"hello")]
    found, remarks = read(tmp_path / "latest")
    assert found == []
    assert "its logs are symbolic links" in remarks[0]


REFUSED = [
    (b"", "it is empty"),
    (bytes(range(256)) * 40, "its bytes are no text"),
    (b"\x00" * 5000, "its bytes are no text"),
    (b"\xfd7zXZ\x00abc", "it is packed with xz (unpack it first)"),
    ("text".encode("utf-16"), "its text is UTF-16"),
]


@pytest.mark.parametrize(("data", "why"), REFUSED)
def test_what_is_no_log_is_a_remark(tmp_path, data, why):
    """It says which file and why, and stops nothing."""
    path = tmp_path / "x.log"
    path.write_bytes(data)
    (tmp_path / "y.log").write_text("fine\n")
    found, remarks = read(path, tmp_path / "y.log")

    assert found == [("y.log", b"fine")]
    assert remarks[0].startswith(f"cannot read {path} as a log, because {why}")


def test_a_log_that_was_truncated_under_its_writer_is_read(tmp_path):
    """It begins with a hole of zeros."""
    path = tmp_path / "x.log"
    path.write_bytes(b"\0" * 3000 + b"after\nthat\n")

    assert read(path)[0][-1] == ("x.log", b"that")


def test_what_cannot_be_opened_is_a_remark(tmp_path):
    """A path that is not there, and one that is neither file nor pipe."""
    _, remarks = read(tmp_path / "gone.log", "/dev/null")

    assert remarks == [
        f"cannot read {tmp_path}/gone.log as a log, because no such file or directory",
        "cannot read /dev/null as a log, because it is neither a file nor a pipe",
    ]


def test_a_hostile_name_is_made_printable(tmp_path):
    """It goes to a terminal."""
    path = tmp_path / "a\x1b[2J.log"
    path.write_text("x\n")
    [(name, _)], _ = read(path)

    assert name == "a\\x1b[2J.log"


def test_a_pipe_is_read_to_its_end(tmp_path):
    """``dsup diagnose <(kubectl logs …)``."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_bytes, args=(b"a\nb\n",))
    writer.start()
    found, _ = read(path)
    writer.join(60)

    assert found == [("pipe", b"a"), ("pipe", b"b")]


def test_a_pipe_inside_a_directory_is_left_alone(tmp_path):
    """It would wait for its writer for ever."""
    os.mkfifo(tmp_path / "x.log")

    assert read(tmp_path)[0] == []


def test_a_file_that_grows_is_read_up_to_its_size_at_the_start(tmp_path):
    """The job still writes while it is diagnosed."""
    path = tmp_path / "x.log"
    path.write_bytes(b"a" * 2_000_000)
    fd = os.open(path, os.O_RDONLY)
    blocks = present(fd)
    first = next(blocks)
    with path.open("ab") as more:
        more.write(b"more\n")

    assert len(first) + sum(map(len, blocks)) == 2_000_000
    os.close(fd)


def test_a_packed_log_is_unpacked(tmp_path):
    """A rotated ``job.log.1.gz``, in two members."""
    path = tmp_path / "job.log.1.gz"
    path.write_bytes(gzip.compress(b"a\n") + gzip.compress(b"b\n"))

    assert read(tmp_path)[0] == [("job.log.1.gz", b"a"), ("job.log.1.gz", b"b")]


def test_a_packed_log_that_is_cut_is_read_so_far(tmp_path):
    """The disk was full, for instance."""
    path = tmp_path / "job.log.gz"
    path.write_bytes(gzip.compress(os.urandom(9999).hex().encode())[:-500])
    found, remarks = read(path)

    assert found
    assert "its compressed data are broken" in remarks[0]


def test_a_bomb_is_read_so_far(tmp_path):
    """A few kilobytes that hold gigabytes."""
    path = tmp_path / "job.log.gz"
    path.write_bytes(gzip.compress(b"a" * 9_000_000))
    files = LogFiles([str(path)], Caps(unpacked=3_000_000))

    assert sum(len(line.data) for line in files.lines()) <= 3_000_000
    assert "unpacked it is larger" in files.remarks[0]


def test_too_many_files_are_cut_with_a_remark(tmp_path):
    """One sentence for all that are left out."""
    for i in range(6):
        (tmp_path / f"{i}.log").write_text("x")
    files = LogFiles([str(tmp_path)], Caps(files=3))

    assert len(list(files.lines())) == 3
    assert files.remarks == ["only the first 3 logs are read (name those that matter)"]


def test_empty_files_of_a_directory_are_news_and_no_errors(tmp_path):
    """A rank that wrote nothing; where all wrote nothing, there is no log."""
    for name in ("a.err", "b.err", "c.err", "d.err", "e.err"):
        (tmp_path / name).write_text("")
    _, hollow = read(tmp_path)
    (tmp_path / "a.out").write_text("step 1\n")
    _, remarks = read(tmp_path)

    assert len(hollow) == 5
    assert all(text.endswith("because it is empty") for text in hollow)
    (remark,) = remarks
    assert remark.startswith(f"nothing was written to {tmp_path}/a.err, ")
    assert remark.endswith("d.err and 1 more")
