"""``dsup kernel-log``: faults for people and for programs, and refusals."""

import gzip
import json
import random
import subprocess
import sys

import pytest

from dsup.cli import kernel_log_files as files
from dsup.facts.kernel import KernelFault
from dsup.facts.xids import XIDS
from dsup.report.kernel_lines import fault_lines

XID = "NVRM: Xid (PCI:0000:4b:00): 79, GPU has fallen off the bus."
KILL = "Memory cgroup out of memory: Killed process 4177 (python) anon-rss:7kB"
LOG = f"""\
[  100.000001] usb 1-1: new device
[  123.456789] {KILL}
[ 7323.456789] {XID}
"""


@pytest.fixture
def log(home):
    """Give the path of a log with two faults, two hours apart."""
    path = home / "kern.log"
    path.write_text(LOG)
    return str(path)


def test_faults_are_printed_one_a_line(dsup, log):
    """Time, kind, and the kernel's own words, which are not repeated."""
    said = dsup("kernel-log", log)
    kill, gone = (line for line in said.out.splitlines() if line.lstrip()[0] == "[")

    assert (said.code, said.err) == (0, "")
    assert kill == f" [123.456789]  oom_memcg   {KILL}"
    assert gone == f"[7323.456789]  Xid 79      {XID}"


def test_a_meaning_is_told_once(dsup, home):
    """A log repeats itself, and what stands below each fault would hide the next."""
    (home / "a.log").write_text(f"[1.000000] {XID}\n[900.000000] {XID}\n")
    out = dsup("kernel-log", "a.log").out

    assert (out.count("Xid 79  "), out.count("means:")) == (2, 1)


def test_times_have_one_form(dsup, home):
    """Those of the wall where each fault has one, else since boot where it is known."""
    ring = f"kernel: [ 7.000000] {XID}"
    (home / "a.log").write_text(
        f"2024-10-12T18:35:32.5Z n {ring}\n2024-10-13T18:35:32Z n kernel: {KILL}\n"
    )
    (home / "b.log").write_text(f"Oct 12 18:35:32 n {ring}\n[ 8.000000] {KILL}\n")
    dated, booted = dsup("kernel-log", "a.log").out, dsup("kernel-log", "b.log").out

    assert "2024-10-12 18:35:32.5Z  Xid" in dated
    assert "\n  2024-10-13 18:35:32Z  oom_memcg" in dated
    assert [s[:10] for s in booted.splitlines() if s[0] == "["] == [
        "[7.000000]",
        "[8.000000]",
    ]


def test_a_terminal_is_not_wrapped():
    """A fault is one line of it; what is piped may be searched, and stays whole."""
    fault = KernelFault("xid", xid=1, text="x" * 300)
    cut = next(fault_lines([fault], colour=False, columns=80))
    whole = next(fault_lines([fault], colour=False))

    assert (len(cut), cut[-1]) == (80, "…")
    assert whole.endswith(fault.text)


def test_programs_get_the_date(dsup, home):
    """Beside the time since boot, and with no zone that the log does not tell."""
    (home / "a.log").write_text(
        f"2024-10-12 18:35:32 n kernel: [ 7.000000] {KILL}\n"
        f"Oct 13 18:35:32 n kernel: {XID}\n"
    )
    rows = json.loads(dsup("kernel-log", "a.log", "--json").out)

    assert [(r["at_us"], r["wall"], r["stamp"]) for r in rows] == [
        (7_000_000, "2024-10-12T18:35:32", "2024-10-12 18:35:32"),
        (None, None, "Oct 13 18:35:32"),
    ]


def test_programs_get_an_array_of_exactly_these_fields(dsup, log):
    """What the lines do not say is null, never invented."""
    rows = json.loads(dsup("kernel-log", log, "--json").out)

    assert rows == [
        {
            "kind": "oom_memcg",
            "pid": 4177,
            "comm": "python",
            "xid": None,
            "pci": None,
            "cgroup": None,
            "anon_rss_kb": 7,
            "lib": None,
            "seq": None,
            "at_us": 123_456_789,
            "stamp": "",
            "text": KILL,
            "wall": None,
        },
        {
            "kind": "xid",
            "pid": None,
            "comm": None,
            "xid": 79,
            "pci": "0000:4b:00",
            "cgroup": None,
            "anon_rss_kb": None,
            "lib": None,
            "seq": None,
            "at_us": 7_323_456_789,
            "stamp": "",
            "text": XID,
            "wall": None,
        },
    ]


def test_a_person_is_told_what_an_xid_means(dsup, log, monkeypatch):
    """On a terminal the number is explained, in colour."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    out = dsup("kernel-log", log).out

    assert f"means: {XIDS[79].meaning}" in out
    assert f"to do: {XIDS[79].advice}" in out
    assert "\x1b[1;31mXid 79" in out


def test_a_log_without_faults_says_so(dsup, home):
    """Nothing found is an answer, and no failure."""
    (home / "a.log").write_text("[ 1.234567] usb 1-1: new device\n" * 3)

    said = dsup("kernel-log", "a.log")
    assert (said.code, said.out, said.err) == (0, "no fault in 3 lines\n", "")
    assert json.loads(dsup("kernel-log", "a.log", "--json").out) == []


def test_holes_in_a_log_are_told_apart_from_its_faults(dsup, home):
    """For programs the remark is no part of the array."""
    (home / "a.log").write_text("6,1,5,-;a\n6,9,5,-;b\n")
    people = dsup("kernel-log", "a.log")
    program = dsup("kernel-log", "a.log", "--json")

    assert people.out == "no fault in 2 lines\n7 records are missing\n"
    assert (json.loads(program.out), program.err) == (
        [],
        "dsup: 7 records are missing\n",
    )


@pytest.mark.parametrize(
    ("since", "kinds"),
    [
        ("10", ["xid"]),
        ("119m", ["xid"]),
        ("2h", ["oom_memcg", "xid"]),
        ("1d", ["oom_memcg", "xid"]),
    ],
)
def test_what_is_old_can_be_left_out(dsup, log, since, kinds):
    """Old is what lies that long before the end of the log."""
    rows = json.loads(dsup("kernel-log", log, "--json", "--since", since).out)

    assert [row["kind"] for row in rows] == kinds


def test_what_tells_no_time_since_boot_is_not_left_out(dsup, home):
    """A fault is not hidden because its age is unknown."""
    (home / "a.log").write_text(f"[Sat Oct 12 18:35:32 2024] {XID}\n")
    said = dsup("kernel-log", "a.log", "--since", "1")

    assert said.out.startswith("2024-10-12 18:35:32  Xid 79")


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ([], "no log was named"),
        (["--live", "x.log"], "--live is a log of its own"),
        (["x.log", "--since", "yesterday"], "it is no time"),
        (["x.log", "--since", "-5"], "it is no time"),
        (["a", "b"], "got unexpected extra argument"),
    ],
)
def test_a_wrong_call_is_refused(dsup, words, reason):
    """What makes no sense is said at once, and nothing is read."""
    said = dsup("kernel-log", *words)

    assert (said.code, said.out) == (2, "")
    assert reason in said.err


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "it is empty"),
        (bytes(range(256)) * 20, "it is binary"),
        (b"\x7fELF" + b"\0" * 500, "it is binary"),
        (gzip.compress(LOG.encode()), "packed with gzip (zcat x.log |"),
        (b"LPKSHHRH" + b"\0" * 500, "it is a journal (journalctl -k --file x.log"),
    ],
)
def test_what_is_no_log_is_refused(dsup, home, content, reason):
    """Each is told what it is, and what to do instead."""
    (home / "x.log").write_bytes(content)
    said = dsup("kernel-log", "x.log")

    assert (said.code, said.out) == (1, "")
    assert said.err.startswith("dsup: cannot read x.log, because ")
    assert reason in said.err


def test_what_cannot_be_opened_is_refused(dsup, home):
    """No file, or a directory."""
    missing, directory = dsup("kernel-log", "no.log"), dsup("kernel-log", str(home))

    assert missing.code == directory.code == 1
    assert "no such file or directory" in missing.err
    assert "it is a directory" in directory.err


def test_bytes_that_are_no_text_do_not_hide_a_fault(dsup, home):
    """A console cut by a crash may have a little of everything in it."""
    (home / "a.log").write_bytes(b"\xff\xfe\x00 x\n" + LOG.encode() * 9 + b"\xc3")

    assert [r["kind"] for r in json.loads(dsup("kernel-log", "a.log", "--json").out)]


def test_no_bytes_stop_the_command(dsup, home):
    """Whatever a file holds, it is read or refused in one line."""
    noise = random.Random(7)  # noqa: S311 (the same bytes each time)
    for size in (1, 50, 5000, 50_000):
        (home / "x.log").write_bytes(noise.randbytes(size) + LOG.encode())
        said = dsup("kernel-log", "x.log")
        assert said.code in {0, 1}
        assert "a bug in dsup" not in said.err


def test_terminal_escapes_of_a_log_move_no_cursor(dsup, home):
    """A name is its maker's choice, and is shown as what it is."""
    (home / "a.log").write_text("Out of memory: Killed process 9 (\x07a\x9b2J) x\n")
    out = dsup("kernel-log", "a.log").out

    assert all(line.isprintable() for line in out.splitlines())


def test_lines_without_end_cost_bounded_memory(home):
    """Of a line that never ends only its beginning is kept."""
    path = home / "a.log"
    path.write_bytes(b"x" * 5_000_000 + b"\n" + LOG.encode())
    log = files.saved(str(path))

    assert len(log.faults()) == 2
    assert log.lines == 4


@pytest.mark.slow
def test_standard_input_is_read(home):
    """The log may come from a pipe."""
    command = [sys.executable, "-m", "dsup", "kernel-log", "-", "--json"]
    done = subprocess.run(command, input=LOG.encode(), capture_output=True, check=True)

    assert [row["kind"] for row in json.loads(done.stdout)] == ["oom_memcg", "xid"]


def test_the_live_log_is_read_from_its_oldest_record(home):
    """What happened before dsup was called is there too."""
    (home / "kmsg").write_text(f"3,17,5,-;{KILL}\n")
    (fault,) = files.live(str(home / "kmsg")).faults()

    assert (fault.kind, fault.seq, fault.at_us) == ("oom_memcg", 17, 5)


def test_without_the_live_log_journald_is_asked(home):
    """The journal's copy needs other rights than the log itself."""
    told = {"_TRANSPORT": "kernel", "SYSLOG_FACILITY": "0", "MESSAGE": KILL}
    program = home / "journalctl"
    program.write_text(f"#!/bin/sh\necho '{json.dumps(told)}'\n")
    program.chmod(0o755)
    (fault,) = files.live(str(home / "kmsg"), str(program)).faults()

    assert fault.pid == 4177


def test_without_either_both_reasons_are_told(home):
    """Whoever reads it can choose which to repair."""
    with pytest.raises(files.UnreadableLogError) as caught:
        files.live(str(home / "kmsg"), str(home / "journalctl"))

    assert "there is no" in str(caught.value)
    assert "from the journal" in str(caught.value)
    assert caught.value.exit_code == 1
