"""A stream's files: the log, its time index, rotation, times, filtered lines."""

import os
import time

import pytest

from dsup.edges.scribe.files import Disk, LogFile
from dsup.edges.scribe.rank_log import Filter, Index, RankLog
from dsup_runtime.contract import INDEX_RECORD

MS = 1_000_000


class Log:
    """A log whose time a test moves."""

    def __init__(self, directory):
        self.path = directory / "stdout.log"
        self.said: list[str] = []
        self.wall_ns = 1_700_000_000_000 * MS
        self.disk = Disk(str(directory), self.said.append, time.monotonic)
        index = Index(str(self.path), 0o600, lambda: self.wall_ns)
        log = LogFile(str(self.path), 0o600)
        self.rank = RankLog(self.disk, log, "stdout.log", index)

    def append(self, chunk, after_ms=0):
        """Read something after some time."""
        self.wall_ns += after_ms * MS
        self.rank.append(chunk)

    def read(self, suffix=""):
        """Return what a file holds."""
        return self.path.with_name(self.path.name + suffix).read_bytes()

    def index(self, suffix=".index"):
        """Return the records of an index."""
        return list(INDEX_RECORD.iter_unpack(self.read(suffix)))


@pytest.fixture
def log(tmp_path):
    return Log(tmp_path)


def test_the_index_tells_when_bytes_were_read(log):
    """At most ten records a second: wall time, and the offset of what came then."""
    began = log.wall_ns
    log.append(b"x" * 10)
    log.append(b"x" * 10, after_ms=50)
    log.append(b"x" * 10, after_ms=50)
    log.append(b"x" * 10, after_ms=500)

    assert log.index() == [(began, 0), (began + 100 * MS, 20), (began + 600 * MS, 30)]


def test_the_index_survives_a_clock_that_is_set_back(log):
    """An hour lost is not an hour without an index."""
    log.append(b"x")
    log.append(b"x", after_ms=-3_600_000)

    assert [offset for _, offset in log.index()] == [0, 1]


def test_the_index_goes_on_behind_a_torn_record(log):
    """A scribe killed in the middle of a record leaves no nonsense behind."""
    log.path.with_name("stdout.log.index").write_bytes(b"x" * (INDEX_RECORD.size + 3))
    log.append(b"x")

    assert len(log.index()) == 2


def test_a_log_that_has_grown_past_its_limit_begins_anew(log):
    """One older file stays; lines are not cut; the index follows."""
    log.rank.limited(1000)
    for n in range(50):
        log.append(b"%049d\n" % n, after_ms=100)

    assert log.read(".1") + log.read() == b"".join(
        b"%049d\n" % n for n in range(20, 50)
    )
    assert [offset for _, offset in log.index(".1.index")] == list(range(0, 1000, 50))
    assert [offset for _, offset in log.index()] == list(range(0, 500, 50))


def test_a_large_block_is_parted_between_lines(log):
    """The old file is filled with whole lines, the rest begins the new one."""
    log.rank.limited(100)
    log.append(b"%09d\n" % 1 * 25)

    assert log.read(".1") == b"%09d\n" % 1 * 10
    assert log.read() == b"%09d\n" % 1 * 15


def test_a_log_that_cannot_be_renamed_grows_on(log):
    """Rotation fails no print and loses no byte."""
    log.path.with_name("stdout.log.1").mkdir()
    log.rank.limited(100)
    for _ in range(30):
        log.append(b"%09d\n" % 1)

    assert log.read() == b"%09d\n" % 1 * 30
    assert log.said == []


def test_times_stand_before_each_line(log):
    """Asked for, each line of the file begins with its time, pieces do not."""
    log.rank.stamped(lambda: b"12:00Z ")
    log.append(b"one\ntw")
    log.append(b"o\nthree\n")

    assert log.read() == b"12:00Z one\n12:00Z two\n12:00Z three\n"


def test_matching_lines_of_all_ranks_are_copied(tmp_path, log):
    """A line that contains one of the texts is copied behind its rank's prefix."""
    shared = Filter(log.disk, LogFile(str(tmp_path / "filtered"), 0o600), "filtered")
    first = shared.of(["loss", "Error"], "[a0]:")
    second = shared.of(["loss", "Error"], "[a1]:")
    first.lines(b"step 1\nloss 0.5\n")
    second.lines(b"ValueError\nnothing\nlossless\n")
    first.lines(b"nothing\n")

    assert (tmp_path / "filtered").read_bytes() == (
        b"[a0]:loss 0.5\n[a1]:ValueError\n[a1]:lossless\n"
    )


def test_no_index_of_links(tmp_path):
    """A link in the index's place is not followed."""
    os.symlink("/dev/full", tmp_path / "stdout.log.index")
    log = Log(tmp_path)
    log.append(b"x")

    assert log.read() == b"x"
    assert (tmp_path / "stdout.log.index").is_symlink()
