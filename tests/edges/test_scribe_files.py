"""The scribe's files on good disks and full ones."""

import os
import subprocess

import pytest

from dsup.edges.scribe.files import KEPT_BYTES, RESERVE_BYTES, Disk, LogFile

NAME = "attempt_0/0/stdout.log"


def write_without_end(file):
    while file.write(b"x" * 4096):
        pass


class Desk:
    """A disk with a rank's log and the journal on it, and what was said."""

    def __init__(self, run_dir):
        self.run_dir, self.now_s = run_dir, 100.0
        self.said: list[str] = []
        self.disk = Disk(str(run_dir), self.said.append, lambda: self.now_s)
        self.rank = LogFile(str(run_dir / "stdout.log"), 0o600)
        self.lines = LogFile(str(run_dir / "events.jsonl"), 0o600, whole_lines=True)

    def log(self, data):
        """Append to the rank's log."""
        self.disk.append(self.rank, NAME, data)

    def journal(self, line):
        """Append to the journal."""
        self.disk.append_line(self.lines, "events.jsonl", line)

    def fill(self):
        """Leave no byte on the disk."""
        filler = self.run_dir / "filler"
        with filler.open("ab", buffering=0) as file, pytest.raises(OSError, match="No"):
            write_without_end(file)

    def tick(self, seconds=1.0):
        """Let time pass, and the scribe do what is due."""
        self.now_s += seconds
        self.disk.tick()

    def read(self, name):
        """Return what a file holds."""
        return (self.run_dir / name).read_bytes()


@pytest.fixture
def small(tmp_path):
    """A desk on a disk of 3 MiB, with the reserve on it."""
    mount = tmp_path / "disk"
    mount.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-osize=3m", "tmpfs", mount], check=True)
    desk = Desk(mount)
    yield desk
    desk.rank.close()
    desk.lines.close()
    subprocess.run(["umount", mount], check=True)


@pytest.mark.root
def test_a_full_disk_costs_the_beginning_not_the_end(small):
    """The last 64 KiB are kept, said once, tried again each second, and written."""
    small.log(b"before\n")
    small.fill()
    for number in range(40_000):
        small.log(b"line %d\n" % number)
    (said,) = small.said
    assert said == (
        f"dsup: cannot write {NAME}, because no space left on device: "
        "keeping the last 64 KiB of each stream in memory"
    )
    small.tick()
    assert len(small.said) == 1
    (small.run_dir / "filler").unlink()
    small.tick(0.5)
    assert small.disk.troubled
    small.tick()

    log = small.read("stdout.log")
    written = b"".join(b"line %d\n" % number for number in range(40_000))
    assert log.endswith(b"line 39999\n")
    assert not small.disk.troubled
    lost = len(b"before\n") + len(written) - len(log)
    assert small.said[1:] == [f"dsup: logs are written again: {lost:,} bytes were lost"]
    assert lost >= len(written) - KEPT_BYTES - 4096


@pytest.mark.root
def test_the_end_of_an_endless_line_is_kept(small):
    """What is kept begins with a line where there is one, and is never empty."""
    small.fill()
    small.log(b"x" * 200_000 + b"\n")
    (small.run_dir / "filler").unlink()
    small.tick()

    assert small.read("stdout.log")[-KEPT_BYTES:] == b"x" * (KEPT_BYTES - 1) + b"\n"


@pytest.mark.root
def test_the_journal_has_the_reserve_and_the_logs_do_not(small):
    """On a full disk the journal goes on, and no rank's log eats its room."""
    small.journal(b'{"n": 1}')
    small.fill()
    small.journal(b"x" * 8000)
    assert not (small.run_dir / ".reserve").exists()
    for _ in range(100):
        small.log(b"y" * 65536)
        small.tick()
    for number in range(100):
        small.journal(b"%d" % number * 1000)

    assert small.read("events.jsonl").count(b"\n") == 102
    assert small.read("stdout.log") == b""
    (small.run_dir / "filler").unlink()
    small.tick()
    assert small.read("stdout.log") == b"y" * 65536
    assert (small.run_dir / ".reserve").stat().st_size == RESERVE_BYTES


@pytest.mark.root
def test_directories_and_copies_may_use_the_reserve(small):
    """A restart's directories can be made on a full disk."""
    small.fill()

    def fail_once_then_write():
        (small.run_dir / "copy").write_bytes(b"z" * 8192)

    assert small.disk.try_with_reserve(fail_once_then_write) is None
    assert small.read("copy") == b"z" * 8192


@pytest.mark.root
def test_closing_on_a_full_disk_says_what_is_lost(small):
    """The reserve is given to the logs at last; what still does not fit is named."""
    small.fill()
    small.log(b"y" * 8000)
    small.disk.close()
    assert small.read("stdout.log") == b"y" * 8000

    small.fill()
    small.log(b"y" * 8000)
    small.disk.close()
    assert small.said[-1] == (
        "dsup: cannot write the last lines of a log, because no space left on device"
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(b"", b"new\n", id="empty"),
        pytest.param(b"one\n", b"one\nnew\n", id="whole"),
        pytest.param(b'one\n{"n": 2, "ki', b"one\nnew\n", id="torn"),
        pytest.param(b'{"n": 1, "ki', b"new\n", id="torn first line"),
    ],
)
def test_a_torn_journal_line_is_removed(tmp_path, before, after):
    """A line whose scribe was killed in the middle is resent, not joined to."""
    (tmp_path / "events.jsonl").write_bytes(before)
    desk = Desk(tmp_path)
    desk.journal(b"new")

    assert desk.read("events.jsonl") == after


def put_link(path):
    (path.parent / "target").touch()
    path.symlink_to(path.parent / "target")


@pytest.mark.parametrize(
    "put",
    [
        pytest.param(put_link, id="link"),
        pytest.param(os.mkfifo, id="fifo"),
        pytest.param(os.mkdir, id="directory"),
    ],
)
def test_what_somebody_put_in_the_way_is_not_written_to(tmp_path, put):
    """A link, a FIFO or a directory in the log's place: said, and kept in memory."""
    put(tmp_path / "stdout.log")
    desk = Desk(tmp_path)
    desk.log(b"secret\n")

    assert len(desk.said) == 1
    assert desk.said[0].startswith(f"dsup: cannot write {NAME}, because ")
    assert not (tmp_path / "target").exists() or desk.read("target") == b""
