"""The kernel log as it comes: never blocks, bounded, honest about what is missing."""

import errno
import json
import os
import select
import signal
import subprocess
import sys
import time

import pytest

from dsup.edges.kernel_log import (
    KEPT_MAX_BYTES,
    KernelLog,
    abends_from_journal,
    from_journal,
    replay,
)
from dsup.facts import audit, kernel, kmsg

WAIT_S = 600
ENTRY = {"_TRANSPORT": "kernel", "SYSLOG_FACILITY": "0", "MESSAGE": "hello"}


class Source:
    """A kernel log that gives what was set before: records, or numbers of errors."""

    def __init__(self):
        self.reads = []
        self.endless = False

    def read(self, _fd, size):
        """Stand for ``os.read``."""
        if not self.reads:
            raise BlockingIOError(errno.EAGAIN, "")
        given = self.reads[0] if self.endless else self.reads.pop(0)
        if isinstance(given, int):
            raise OSError(given, os.strerror(given))
        return given[:size]


@pytest.fixture
def source():
    """Give a log that says what the test wants."""
    return Source()


@pytest.fixture
def log(source, tmp_path):
    """Open that log."""
    path = tmp_path / "kmsg"
    path.touch()
    opened = KernelLog(str(path), source.read)
    yield opened
    opened.close()


@pytest.fixture
def own_log():
    """Open this machine's log."""
    opened = KernelLog()
    yield opened
    opened.close()


def record(seq, text=b"text", prio=6):
    return b"%d,%d,%d,-;%s\n" % (prio, seq, seq * 1000, text)


def faults(log):
    parsed = map(kmsg.parse, log.records)
    return kernel.match([one for one in parsed if one])


def wait_for_fault(log, pid, limit_s=WAIT_S):
    """Return the fault of a process, which the kernel may print after its end."""
    until_s = time.monotonic() + limit_s
    while time.monotonic() < until_s:
        log.drain()
        found = [fault for fault in faults(log) if fault.pid == pid]
        if found:
            return found[0]
        select.select([log.fd], [], [], 0.1)
    return None


def test_records_are_kept_in_the_order_of_their_arrival(log, source):
    """What came is there, raw, once, and in order; draining again adds only news."""
    first = [record(1), record(2, b"python[41]: segfault at 8"), record(3)]
    source.reads = list(first)
    log.drain()
    source.reads = [record(4)]
    log.drain()
    log.drain()

    assert log.records == (*first, record(4))
    assert (log.lost, log.error) == (0, "")


@pytest.mark.parametrize(
    ("reads", "lost", "kept"),
    [
        pytest.param([record(1), record(5)], 3, [1, 5], id="numbers are missing"),
        pytest.param(
            [record(1), errno.EPIPE, record(5)], 3, [1, 5], id="overwritten meanwhile"
        ),
        pytest.param(
            [errno.EPIPE, record(5)], 1, [5], id="overwritten before the first"
        ),
        pytest.param(
            [record(1), errno.EINVAL, record(3)], 1, [1, 3], id="no room for one"
        ),
        pytest.param(
            [record(4), record(2), record(6)], 1, [4, 2, 6], id="numbers from the past"
        ),
        pytest.param([record(4), b"garbage", record(5)], 0, [4, None, 5], id="garbage"),
    ],
)
def test_missing_records_are_counted(log, source, reads, lost, kept):
    """Reading goes on after a gap, and the gap's size is known."""
    source.reads = reads
    log.drain()
    seqs = [parsed and parsed.seq for parsed in map(kmsg.parse, log.records)]

    assert seqs == kept
    assert (log.lost, log.error) == (lost, "")


@pytest.mark.parametrize(
    "telling",
    [
        b"python invoked oom-killer: gfp_mask=0xcc0",
        b"memory: usage 1kB, limit 1kB, failcnt 3",
        b"Task in /a killed as a result of limit of /b",
        b"Memory cgroup stats for /a:",
        b"oom-kill:constraint=CONSTRAINT_MEMCG",
        b"Out of memory: Kill process 41 (python) score 9",
        b"Killed process 41 (python)",
        b"Tasks in /a are going to be killed due to memory.oom.group set",
        b"python[41]: segfault at 8",
        b"traps: python[41] trap int3",
        b"python[41]: unhandled exception: DABT",
        b"general protection fault: 0000 [#1]",
        b"CPU: 3 PID: 41 Comm: python",
        b"cgroup: fork rejected by pids controller in /a",
        b"NVRM: Xid (PCI:0000:01:00): 79",
    ],
)
def test_noise_pushes_out_no_telling_record(log, source, telling):
    """Memory is bounded; what may tell of a fault outlives a flood of the rest."""
    noise = b"mlx5_core 0000:00:00.1: x" * 20
    source.reads = [record(1, telling), *(record(n, noise) for n in range(2, 2000))]
    log.drain()

    assert log.records[0] == record(1, telling)
    assert log.records[-1] == record(1999, noise)
    assert KEPT_MAX_BYTES - 1000 < sum(map(len, log.records)) <= KEPT_MAX_BYTES
    assert log.lost == 0


def test_a_flood_of_telling_records_keeps_the_newest(log, source):
    """Bounded is bounded; records that may have told something count as lost."""
    flood = [record(n, b"segfault" * 60) for n in range(1000)]
    source.reads = list(flood)
    log.drain()

    assert log.records == tuple(flood[-len(log.records) :])
    assert sum(map(len, log.records)) <= KEPT_MAX_BYTES
    assert log.lost == 1000 - len(log.records)


def test_what_processes_write_pushes_out_nothing_telling(log, source):
    """A process that writes look-alikes by the thousand hides no fault."""
    telling = record(1, b"Killed process 41 (python)")
    forged = [record(n, b"Killed process 9 (x)" * 30, 12) for n in range(2, 2000)]
    source.reads = [telling, *forged]
    log.drain()

    assert log.records[0] == telling
    assert [fault.pid for fault in faults(log)] == [41]


def test_a_log_that_never_ends_does_not_hold_the_agent(log, source):
    """A drain ends though records come as fast as they are read; the next goes on."""
    source.reads = [record(7)]
    source.endless = True
    log.drain()
    kept = len(log.records)
    log.drain()

    assert len(log.records) >= kept > 0


@pytest.mark.parametrize("code", [errno.EPERM, errno.EIO])
def test_a_log_that_begins_to_fail_says_so(log, source, code):
    """What was read before stays; the descriptor is closed."""
    source.reads = [record(1), code, record(2)]
    log.drain()
    log.drain()

    assert log.records == (record(1),)
    assert log.error.startswith("cannot read the kernel log, because ")
    assert log.fd == -1


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        pytest.param("/nowhere/kmsg", "there is no /nowhere/kmsg (give", id="absent"),
        pytest.param("/dev/null", "/dev/null is another device (give", id="masked"),
        pytest.param("/dev/null/x", "/dev/null/x fails: Not a directory", id="broken"),
    ],
)
def test_a_log_that_cannot_be_opened_says_why(path, reason):
    """A missing log is no error of the run: it is empty, and tells the reason."""
    log = KernelLog(path)
    log.drain()
    log.close()

    assert log.error.startswith(f"cannot read the kernel log, because {reason}")
    assert (log.fd, log.records, log.lost) == (-1, (), 0)


def test_a_directory_in_its_place_is_no_log(tmp_path):
    """It can be opened, but not read; that is found at the first drain."""
    log = KernelLog(str(tmp_path))
    log.drain()

    assert log.error.endswith(f"{tmp_path} fails: Is a directory (see dmesg)")


def test_opening_and_closing_leaves_no_descriptor(tmp_path, descriptors):
    """An attempt's log is gone with the attempt; its records stay."""
    before = descriptors()
    for path in ("/dev/kmsg", "/dev/null", str(tmp_path)):
        log = KernelLog(path)
        log.drain()
        log.close()
        log.close()

    assert descriptors() == before


@pytest.mark.root
def test_permission_denied_names_the_remedy(tmp_path):
    """An ordinary user learns what would make the log readable."""
    path = tmp_path / "kmsg"
    path.touch(mode=0o600)
    for directory in (tmp_path, *tmp_path.parents[:3]):
        if directory.stat().st_uid == os.geteuid() and directory.name.startswith("pyt"):
            directory.chmod(0o711)
    tmp_path.chmod(0o711)
    code = (
        "import os, sys; from dsup.edges.kernel_log import KernelLog;"
        "os.setgroups([]); os.setuid(65534);"
        "print(KernelLog(sys.argv[1]).error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, check=True
    )

    assert done.stdout.decode() == (
        "cannot read the kernel log, because permission was denied"
        " (grant CAP_SYSLOG or set kernel.dmesg_restrict=0)\n"
    )


def write(text):
    """Have a line in the kernel's log."""
    with open("/dev/kmsg", "wb", buffering=0) as out:
        out.write(f"{text}\n".encode())


def until_seen(log, text):
    """Drain a log until a text is in it."""
    until_s = time.monotonic() + WAIT_S
    while not any(text.encode() in raw for raw in log.records):
        assert time.monotonic() < until_s, "what was written did not come back"
        select.select([log.fd], [], [], 0.1)
        log.drain()


@pytest.mark.root
def test_only_what_comes_after_opening_is_read(request):
    """Faults of earlier attempts are not this one's; nothing waits, nothing blocks."""
    before, after = (f"of {os.getpid()}: {when}" for when in ("before", "after"))
    write(before)
    own_log = request.getfixturevalue("own_log")
    write(after)
    until_seen(own_log, after)

    assert not any(before.encode() in raw for raw in own_log.records)
    assert not os.get_inheritable(own_log.fd)


@pytest.mark.root
def test_a_forged_line_comes_back_and_is_not_believed(own_log):
    """Whoever may write the log can write the kernel's words, but not its facility."""
    pid = os.getpid()
    forged = f"<3>Out of memory: Killed process {pid} (python) total-vm:1kB, x"
    write(forged)
    until_seen(own_log, f"Killed process {pid} ")

    assert [fault for fault in faults(own_log) if fault.pid == pid] == []


OOM = """
import os
from dsup_runtime import oom
try:
    oom.die()
except oom.OomRefusedError as error:
    print(error)
"""


@pytest.mark.root
@pytest.mark.slow
def test_a_real_kill_of_the_kernels_is_found(own_log):
    """Pid, memory, limit and cgroup of a victim are what they truly were."""
    child = subprocess.Popen([sys.executable, "-c", OOM], stdout=subprocess.PIPE)
    refused = child.communicate()[0].decode()
    if refused:
        pytest.skip(refused)
    fault = wait_for_fault(own_log, child.pid)
    subprocess.run(
        [
            sys.executable,
            "-c",
            "from dsup_runtime import oom; oom.remove_dead_groups()",
        ],
        check=True,
    )

    assert child.returncode == -signal.SIGKILL
    assert fault.kind == "oom_memcg"
    assert fault.comm.startswith("py")
    assert fault.cgroup.endswith(f"/dsup-fault-{child.pid}")
    assert (fault.limit_kb, fault.limit_cgroup) == (256 * 1024, fault.cgroup)
    assert 200 * 1024 < fault.anon_rss_kb < 300 * 1024
    assert own_log.lost == 0


NULL_READ = """
import ctypes, faulthandler
faulthandler.disable()
ctypes.string_at(0)
"""


@pytest.fixture
def crash(own_log):
    """Make a process read at address 0; return its fault."""
    with open("/proc/sys/debug/exception-trace") as setting:
        if setting.read().strip() == "0":
            pytest.skip("debug.exception-trace is 0")
    for _ in range(5):  # the kernel prints ten such lines in 5 s, whoever crashes
        child = subprocess.Popen([sys.executable, "-c", NULL_READ])
        assert child.wait() == -signal.SIGSEGV
        fault = wait_for_fault(own_log, child.pid, 1.5)
        if fault:
            return fault
    pytest.fail("the kernel told of none of five crashes")


@pytest.mark.root
def test_a_real_null_read_is_found(crash):
    """A crash that no handler catches is told with its thread, file and address."""
    assert (crash.kind, crash.address, crash.signum) == ("segfault", 0, signal.SIGSEGV)
    assert crash.comm.startswith("py")
    assert crash.lib


@pytest.fixture
def journalctl(tmp_path):
    """Make a program that stands for journalctl, of a piece of shell."""

    def make(script):
        path = tmp_path / "journalctl"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return str(path)

    return make


def entry(at_us, **fields):
    return json.dumps({**ENTRY, "__MONOTONIC_TIMESTAMP": str(at_us), **fields})


def test_the_journal_gives_the_kernels_records_since_a_time(journalctl):
    """Only records of the kernel, and of the attempt, come from there."""
    lines = [
        entry(1),
        entry(5_000_000),
        entry(6_000_000, SYSLOG_FACILITY="1"),
        "no entry",
        entry(7_000_000, MESSAGE="späť"),
    ]
    text = "\n".join(lines)
    program = journalctl(
        f'[ "$*" = "${{*#-k -o json}}" ] && exit 3; cat <<\\E\n{text}\nE'
    )
    found, error = from_journal(5_000_000, WAIT_S, program)

    assert (found, error) == ([lines[1], lines[4]], "")


def test_a_journal_without_news_is_a_journal(journalctl):
    """That nothing was logged lately is known, and no reason to distrust it."""
    assert from_journal(2, WAIT_S, journalctl(f"echo '{entry(1)}'")) == ([], "")


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        pytest.param("exit 0", "it has none (join the group", id="nothing"),
        pytest.param(
            "echo 'No journal files were opened: a\x07b' >&2; echo more >&2; exit 1",
            r"No journal files were opened: a\x07b",
            id="a complaint",
        ),
        pytest.param("head -c 9999 /dev/zero >&2", r"\x00\x00", id="an odd complaint"),
        pytest.param("head -c 9999999 /dev/urandom", "it has none", id="garbage"),
        pytest.param("exec sleep 60", "journalctl took too long", id="never ends"),
        pytest.param("kill -9 $$", "it has none", id="killed"),
    ],
)
def test_a_journal_that_gives_nothing_says_why(journalctl, script, reason):
    """No program, no permission, no time: there is a reason instead of records."""
    limit_s = 0.5 if "sleep" in script else WAIT_S
    found, error = from_journal(0, limit_s, journalctl(script))

    assert found == []
    assert error.startswith("cannot read kernel records from the journal, because ")
    assert reason in error
    assert error.isprintable()


def test_without_journald_that_is_said(tmp_path):
    """A machine without the program is no error."""
    found, error = from_journal(0, WAIT_S, str(tmp_path / "journalctl"))

    assert found == []
    assert error.endswith("journalctl does not start: No such file or directory")


@pytest.mark.slow
def test_a_journal_that_never_ends_is_used_as_far_as_it_came(journalctl):
    """Time and memory are bounded, and the newest is what is kept."""
    big, last = entry(1, MESSAGE="x" * 4000), entry(2)
    script = f"yes '{big}' | head -n 1200; echo '{last}'; exec sleep 600"
    program = journalctl(script)
    found, error = [""], ""
    for limit_s in (2.0, 20.0, 200.0):  # a busy machine may not get so far in the first
        if found[-1:] != [last]:
            found, error = from_journal(0, limit_s, program)

    assert (found[-1:], error) == ([last], "")
    assert sum(map(len, found)) <= 4_194_304


def test_the_journals_reader_dies_with_its_aide(journalctl, tmp_path):
    """An aide that is killed leaves no program behind."""
    told = tmp_path / "pid"
    os.mkfifo(told)
    program = journalctl(f"echo $$ > {told}; exec sleep 60")
    aide = os.fork()
    if aide == 0:
        from_journal(0, 60, program)
        os._exit(0)
    with open(told) as fifo:
        pidfd = os.pidfd_open(int(fifo.read()))
    os.kill(aide, signal.SIGKILL)
    os.waitpid(aide, 0)
    ended = select.select([pidfd], [], [], WAIT_S)[0]
    os.close(pidfd)

    assert ended == [pidfd]


def test_all_that_the_log_still_has_is_replayed(source, tmp_path):
    """Records from before dsup started count; those overwritten are passed over."""
    path = tmp_path / "kmsg"
    path.touch()
    source.reads = [record(1), errno.EPIPE, record(5), record(6)]
    taken: list[bytes] = []

    assert replay(taken.append, str(path), source.read) == ""
    assert taken == [record(1), record(5), record(6)]


def test_a_log_that_cannot_be_replayed_says_why(source, tmp_path):
    """No file, or one that fails: a reason instead of records."""
    assert "there is no" in replay(print, str(tmp_path / "kmsg"), source.read)
    (tmp_path / "kmsg").touch()
    source.reads = [errno.EPERM]
    error = replay(print, str(tmp_path / "kmsg"), source.read)

    assert error.startswith("cannot read the kernel log, because permission was denied")


@pytest.mark.parametrize(
    "text",
    [
        b"NVRM: Xid (PCI:0000:4b:00): 79, GPU has fallen off the bus.",
        b"nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30 Fault Up",
        b"mce: [Hardware Error]: Machine check events logged",
        b"EDAC MC0: 1 UE memory read error on any memory",
        b"Memory failure: 0x1a: Killing python:4 due to hardware memory corruption",
        b"pcieport 0000:3a:00.0: AER: Corrected error received: 0000:3b:00.0",
        b"INFO: task python:4177 blocked for more than 122 seconds.",
        b"rcu: INFO: rcu_preempt self-detected stall on CPU",
        b"blk_update_request: I/O error, dev sdb, sector 41 op 0x0:(READ)",
        b"nfs: server filer not responding, still trying",
        b"mlx5_core 0000:5c:00.0 ens1: Link down",
        b"cgroup: fork rejected by pids controller in /a",
        b"audit: type=1701 audit(1.2:3): pid=9 comm=x sig=11",
    ],
)
def test_what_tells_of_a_fault_outlives_noise(log, source, text):
    """Another tenant's noise must not push out what a death may be explained by."""
    noise = [record(n, b"usb 1-1: new device" + b"." * 900) for n in range(2, 400)]
    source.reads = [record(1, text), *noise]
    log.drain()

    assert record(1, text) in log.records


def test_deaths_that_only_audit_saw_are_read_from_the_journal(journalctl):
    """The journal has audit's records where a daemon keeps them from the kernel log."""
    told = {"_TRANSPORT": "audit", "MESSAGE": "ANOM_ABEND pid=9 comm=x sig=11"}
    old, new = (
        json.dumps(told | {"__MONOTONIC_TIMESTAMP": str(at_us)}) for at_us in (1, 9)
    )
    other = json.dumps(told | {"_TRANSPORT": "syslog"})
    program = journalctl(f"echo '{old}'; echo '{other}'; echo '{new}'")
    found = abends_from_journal(5, WAIT_S, program)
    (abend,) = audit.match(filter(None, map(kmsg.parse_audit, found)))

    assert (abend.pid, abend.signum, abend.at_us) == (9, 11, 9)


def test_without_journald_no_death_is_known_from_it(tmp_path):
    """A machine without the program is no error."""
    assert abends_from_journal(0, 0.5, str(tmp_path / "journalctl")) == []
