"""The kernel log: real records, never waited for, in bounded memory."""

import os
import subprocess
import sys
import threading
import time

import pytest

from dsup.edges.kernel_log import KEPT_MAX_BYTES, KernelLog, from_journal
from dsup.facts import kmsg
from dsup.facts.kernel import match


@pytest.fixture
def log():
    """Follow the kernel log from now on."""
    opened = KernelLog()
    yield opened
    opened.close()


def write(text):
    """Write a record into the kernel log, as only root may."""
    with open("/dev/kmsg", "wb", buffering=0) as file:
        file.write(f"{text}\n".encode())


def drained(log, words):
    """Drain until a record with these words has come; return those that have."""
    nap, end_s = threading.Event(), time.monotonic() + 5
    while time.monotonic() < end_s:
        log.drain()
        found = [record for record in log.records if words in record]
        if found:
            return found
        nap.wait(0.01)
    return []


def faults(log):
    """Return the faults that were read."""
    return match(filter(None, map(kmsg.parse, log.records)))


@pytest.mark.root
def test_what_was_written_before_is_not_read(log):
    """An attempt begins at the end of the log; its first drain finds only what came."""
    write("dsup test: one more record")

    assert len(drained(log, b"one more record")) == 1


@pytest.mark.root
def test_a_forged_line_is_not_believed(log):
    """What root writes comes back with another facility than the kernel's."""
    write(
        f"Memory cgroup out of memory: Killed process {os.getpid()} (python) "
        "total-vm:1kB, anon-rss:1kB, file-rss:0kB, shmem-rss:0kB, UID:0"
    )

    assert drained(log, b"Killed process")
    assert faults(log) == []


OOM = """
from dsup_runtime import oom
oom.die()
"""


@pytest.mark.root
@pytest.mark.slow
def test_a_real_oom_kill_is_found_with_its_pid(log):
    """The kernel names victim, memory and limit."""
    victim = subprocess.Popen([sys.executable, "-c", OOM])

    assert victim.wait(15) == -9
    assert drained(log, b"Killed process %d" % victim.pid)
    [fault] = [fault for fault in faults(log) if fault.pid == victim.pid]
    assert fault.kind == "oom_memcg"
    assert 100_000 < fault.anon_rss_kb < 400_000


def test_a_log_that_cannot_be_read_says_why(tmp_path):
    """The verdict is then weaker, and says so; nothing fails."""
    log = KernelLog(str(tmp_path / "none"))
    log.drain()

    assert log.records == ()
    assert log.error == (
        "cannot read the kernel log, because no such file or directory (grant "
        "CAP_SYSLOG, or set kernel.dmesg_restrict=0)"
    )


def made(tmp_path, records):
    """Return a log that reads records from a regular file, all at once."""
    path = tmp_path / "kmsg"
    path.write_bytes(b"")
    log = KernelLog(str(path))
    for record in records:
        log._count(record)  # noqa: SLF001 (a file has no record boundaries)
        log._kept.append(record)  # noqa: SLF001
    log._trim()  # noqa: SLF001
    return log


def test_overwritten_records_are_counted(tmp_path):
    """A gap in the sequence numbers is evidence that something is missing."""
    log = made(tmp_path, [b"6,10,5,-;a\n", b"6,11,5,-;b\n", b"6,15,5,-;c\n"])

    assert log.lost == 3


def test_a_flood_leaves_what_tells_something(tmp_path):
    """Noise is forgotten first, oldest first; memory stays bounded."""
    killed = b"3,1,5,-;Killed process 1 (python) total-vm:1kB\n"
    noise = [b"6,%d,5,-;%s\n" % (seq, b"n" * 500) for seq in range(2, 2000)]
    log = made(tmp_path, [killed, *noise])

    assert log.records[0] == killed
    assert log.records[-1] == noise[-1]
    assert sum(map(len, log.records)) <= KEPT_MAX_BYTES


def test_without_a_journal_the_reason_is_told(tmp_path):
    """journalctl may be missing, or have no kernel log for this user."""
    lines, error = from_journal(0, 5.0)

    assert bool(lines) is not bool(error)
