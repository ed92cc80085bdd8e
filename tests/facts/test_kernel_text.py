"""Saved kernel logs: every rendering is read, and only the kernel's own lines count."""

import json
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsup.facts.kernel_text import SavedLog, record_of

KILL = "Out of memory: Killed process 4177 (python) total-vm:9kB, anon-rss:7kB"


def read(*lines):
    """Return a log that was read."""
    log = SavedLog()
    log.take_all([line.encode(errors="surrogateescape") for line in lines])
    return log


def pids(*lines):
    """Return the pids of the faults in lines."""
    return [fault.pid for fault in read(*lines).faults()]


RENDERINGS = {
    "nothing": "§",
    "dmesg": "[  123.456789] §",
    "boot": "[    0.000000] §",
    "without microseconds": "[  240.] §",
    "days": "[1234567.456789] §",
    "caller": "[  123.456789] [ T4177] §",
    "caller, in one": "[  123.456789][    C7] §",
    "an Amlogic kernel": "[  123.456789@3] §",
    "dmesg -d": "[  +0.000844] §",
    "dmesg -d -T": "[Mon Jan  6 10:20:30 2025 <    0.000844>] §",
    "dmesg -d, both": "[  123.456789 <    0.000844>] §",
    "dmesg -T": "[Mon Jan  6 10:20:30 2025] §",
    "dmesg -T, one digit": "[Tue Mar  4 08:05:02 2025] §",
    "dmesg -T in German": "[Di Mär  4 10:20:30 2025] §",
    "dmesg -T in Russian": "[Пн янв  6 10:20:30 2025] §",
    "dmesg -T in Chinese": "[一 1月  6 10:20:30 2025] §",
    "dmesg -H": "[Oct12 18:35] §",
    "dmesg --time-format iso": "2024-04-29T14:55:41,678628+02:00 §",
    "dmesg -x": "kern  :err   : [  123.456789] §",
    "dmesg -x -T": "kern  :err   : [Mon Jan  6 10:20:30 2025] §",
    "dmesg --raw": "<3>[  123.456789] §",
    "dmesg -r without a time": "<6>§",
    "colours": "\x1b[32m[  123.456789] \x1b[0m\x1b[1;31m§\x1b[0m",
    "colours, their escape lost": "[32m[  123.456789] [0m[31m§",
    "colours, written out": "#033[32m[  123.456789] #033[0m§",
    "syslog": "Oct 12 18:35:32 node-1 kernel: §",
    "syslog with the stamp": "Oct 12 18:35:32 node-1 kernel: [  123.456789] §",
    "syslog without host": "Oct  2 18:35:32 kernel: §",
    "syslog in Russian": "окт 12 18:35:32 node-1 kernel: §",
    "syslog with level": "Oct 12 18:35:32 node-1 kern.err kernel: §",
    "syslog with a pid": "Oct 12 18:35:32 node-1 kernel[0]: §",
    "syslog, no tag": "Oct 12 18:35:32 node-1 [  123.456789] §",
    "rsyslog": "2024-10-12T18:35:32.123456+02:00 node-1 kernel: §",
    "rsyslog with the stamp": "2024-10-12T18:35:32Z node-1 kernel: [ 123.456789] §",
    "a date with a blank": "2024-10-12 18:35:32 node-1 kernel: §",
    "journalctl -o short-precise": "Oct 12 18:35:32.123456 node-1 kernel: §",
    "journalctl -o short-full": "Sat 2024-10-12 18:35:32 UTC node-1 kernel: §",
    "journalctl -o short-iso": "2024-10-12T18:35:32+0200 node-1 kernel: §",
    "journalctl -o short-monotonic": "[  123.456789] node-1 kernel: §",
    "journalctl -o short-unix": "1728750932.123456 node-1 kernel: §",
    "only the tag": "kernel: §",
    "glued": "kernel:§",
    "wall": " kernel:[  123.456789] §",
    "Talos": "10.0.0.5: kern: warning: [2025-01-02T03:04:05.123456789Z]: §",
    "Talos, one node": "kern:    info: [2025-01-02T03:04:05.12Z]: §",
    "a hypervisor": "2025-01-02T03:04:05.127Z In(05) vcpu-0 - Guest: <6>[ 12.345678] §",
    "a console": "node-1-console: [  123.456789] §",
    "pdsh": "node-1: [Mon Jan  6 10:20:30 2025] §",
    "pdsh, without a blank": "node-1:[Mon Jan  6 10:20:30 2025] §",
    "dmesg, the first bracket lost": "123.456789] §",
    "an ellipsis for the time": "[…] §",
    "pdsh and syslog": "node-1: Oct 12 18:35:32 node-1 kernel: §",
    "a relay": "Oct 12 18:35:32 10.0.0.5 Oct 12 18:35:32 node-1 kernel: §",
    "two blanks": "Oct 12 18:35:32 node-1 kernel:  [  123.456789] §",
    "cat -n": "  1234\t[  123.456789] §",
    "a byte order mark": "\ufeffOct 12 18:35:32 node-1 kernel: §",
    "journalctl -o verbose": "    MESSAGE=§",
    "journalctl -o export": "MESSAGE=§",
    "journalctl -o json-pretty": '\t"MESSAGE" : "§",',
    "docker compose": "node-1  | [  123.456789] §",
    "grep": "/var/log/kern.log:Oct 12 18:35:32 node-1 kernel: §",
    "grep -n": "kern.log.1:17:[  123.456789] §",
    "quoted": "> [  123.456789] §",
    "quoted twice": "> > Oct 12 18:35:32 node-1 kernel: §",
    "a list": "- [  123.456789] §",
    "indented": "    [  123.456789] §",
    "indented text": "\t    §",
    "indented syslog": "   Oct 12 18:35:32 node-1 kernel: §",
    "CRLF": "[  123.456789] §\r",
    "repeated": "Oct 12 18:35:32 node-1 kernel: message repeated 3 times: [ §]",
    "repeated, with stamp": "Oct 2 18:35:32 n kernel: [1.234567] message repeated"
    " 2 times: [ §]",
    "a time of day": "18:35:32 §",
    "a time of day, two blanks": "  18:35:32.123456  §",
    "a time of day and the tag": "18:35:32 node-1 kernel: §",
    "a level with a stamp": "err [  123.456789] §",
    "a level, indented": " info [  123.456789] §",
    "a level with a date": "crit [Mon Jan  6 10:20:30 2025] §",
    "a level": "warning: §",
    "a level that dmesg decodes": "err: [  123.456789] §",
    "milliseconds": "[  123.456] §",
    "a tool's name": "[kernel ring] [  123.456] §",
    "a console's name": "[serial console 0] [  123.456789] §",
    "RFC 5424": "<3>1 2024-10-12T18:35:32.123Z node-1 kernel - - - [ 12.345678] §",
    "slashes": "2024/10/12 18:35:32 node-1 kernel: §",
    "kmsg": "3,1042,123456789,-;§",
    "kmsg with caller": "3,1042,123456789,-,caller=T4177;§",
}


@pytest.mark.parametrize(
    "text", [KILL, "Memory cgroup out of memory: Killed process 4177 (a b) x"]
)
def test_a_record_is_read_from_every_rendering(text):
    """Whatever a program puts before a record is taken off."""
    for name, form in RENDERINGS.items():
        assert pids(form.replace("§", text)) == [4177], name


SIGNED_BY_OTHERS = {
    "a daemon": "Oct 12 18:35:32 node-1 kubelet[930]: §",
    "a daemon without a pid": "Oct 12 18:35:32 node-1 systemd: §",
    "a daemon that quotes": "Oct 12 18:35:32 node-1 agent[930]: kernel: §",
    "a daemon with syslog": "Oct 12 18:35:32 n agent: Oct 12 18:35:31 n kernel: §",
    "a daemon that quotes a stamp": "Oct 12 18:35:32 n agent[9]: [ 12.345678] §",
    "a daemon in rsyslog": "2024-10-12T18:35:32.123456+02:00 node-1 dockerd[9]: §",
    "another facility, raw": "12,1042,123456789,-;§",
    "another facility, number": "<30>§",
    "another facility, decoded": "user  :warn  : [  123.456789] §",
    "another facility, Talos": "user: warning: [2025-01-02T03:04:05.12Z]: §",
    "a process that wrote to it": "[  123.456789] agent[930]: §",
    "an event": "Warning  OOMKilling  2m  kernel-monitor, node-1  §",
    "an event, bare": "Warning OOMKilling §",
    "an event of the kubelet": "Warning  SystemOOM  2m  kubelet  §",
    "an event in a list": "2m  Warning  OOMKilling  node/node-1  §",
    "an event as YAML": "  message: '§'",
    "an event as JSON": '{"reason": "OOMKilling", "message": "§"}',
    "a program's level": "error: §",
    "a program's level, in capitals": "WARNING: §",
    "a program's time and level": "18:35:32 ERROR trainer: §",
    "a program's brackets": "[trainer] [  123.456789] §",
    "a program's time in brackets": "[rank0] [  123.456] §",
    "a program's log": "2024-10-12 18:35:32,123 ERROR trainer: §",
    "a Python log": "ERROR:root:§",
    "a sentence": "the node said: §",
    "a shell": "train.sh: line 28: §",
}


@pytest.mark.parametrize("form", SIGNED_BY_OTHERS.values(), ids=SIGNED_BY_OTHERS.keys())
def test_what_others_signed_is_not_the_kernels(form):
    """A daemon that quotes a record did not have it happen just then, or at all."""
    trigger = (
        "pt_main_thread invoked oom-killer: gfp_mask=0x1, order=0, oom_score_adj=0"
    )

    assert pids(form.replace("§", KILL)) == []
    assert pids(form.replace("§", trigger)) == []


def entry(**changed):
    """Return a line of ``journalctl -o json``."""
    kernels = {"_TRANSPORT": "kernel", "SYSLOG_FACILITY": "0", "MESSAGE": KILL}
    return json.dumps({"__CURSOR": "s=1", **kernels, **changed})


def test_objects_are_read_if_they_are_the_kernels():
    """The journal says who wrote an entry; a container's runtime only wraps a line."""
    assert pids(entry()) == [4177]
    assert pids(entry(_TRANSPORT="syslog")) == []
    assert pids(entry(SYSLOG_FACILITY="3")) == []
    assert pids(json.dumps({"log": f"[  1.234567] {KILL}\n", "stream": "x"})) == [4177]
    assert pids(json.dumps({"log": 7})) == []
    assert pids("{" * 5000, '{"log": ', '{"a": NaN}') == []


@pytest.mark.parametrize("form", ["    %s=%s", "%s=%s", '\t"%s" : "%s",'])
def test_fields_of_an_entry_are_read_if_it_is_the_kernels(form):
    """A daemon's message may quote a kernel's; what brought it to the journal tells."""

    def entry(transport):
        return form % ("_TRANSPORT", transport), form % ("MESSAGE", KILL)

    assert pids(*entry("kernel")) == [4177]
    assert pids(*entry("syslog"), form % ("PRIORITY", "3")) == []
    assert pids(*entry("syslog"), *entry("kernel")) == [4177]


def test_a_time_since_boot_is_kept_and_any_other_shown():
    """Only the kernel's own clock can be compared with a death."""
    (first,) = read(f"[ 1123.456789] {KILL}").faults()
    (then,) = read(f"[Mon Jan  6 10:20:30 2025] {KILL}").faults()
    (raw,) = read(f"3,1042,77,-;{KILL}").faults()

    assert (first.at_us, first.stamp) == (1_123_456_789, "")
    assert (then.at_us, then.stamp) == (None, "Mon Jan  6 10:20:30 2025")
    assert (raw.at_us, raw.seq) == (77, 1042)


@pytest.mark.parametrize(
    ("stamps", "count"),
    [
        (("Oct 12 18:35:32", "Oct 12 18:35:50"), 1),
        (("Oct 12 18:35:32", "Oct 12 18:37:00"), 2),
        (("2024-10-12T18:35:32.1+02:00", "2024-10-12T18:35:33.1+02:00"), 1),
        (("2024-10-12T18:35:32.1+02:00", "2024-10-13T18:35:32.1+02:00"), 2),
        (("окт 12 18:35:32", "окт 12 19:35:32"), 2),
    ],
)
def test_times_of_the_wall_tell_incidents_apart(stamps, count):
    """How far apart two records are is known, though not how long after boot."""
    line = "NVRM: Xid (PCI:0000:4b:00): 79, GPU has fallen off the bus."
    faults = read(*(f"{stamp} n kernel: {line}" for stamp in stamps)).faults()

    assert len(faults) == count


def test_what_the_kernel_printed_in_pieces_is_one_record():
    """Kernels of 3.5 to 4.9 mark the pieces, whatever is in them."""
    lines = (
        "6,10,5,c;cgroup: fork rejected by pids controller in ",
        "6,11,5,+;/a",
        "6,12,5,+;/b c",
        "6,13,5,-;/d",
    )
    (fault,) = read(*lines).faults()

    assert (fault.cgroup, fault.seq) == ("/a/b c", 10)


@pytest.mark.parametrize(
    "lines",
    [
        ["traps: py[9] trap int3 ip:7f sp:7f error:0", " in libx.so[7f86+43000]"],
        ["traps: py[9] trap int3 ip:7f sp:7f error:0", "x", " in libx.so[7f86+43000]"],
    ],
)
@pytest.mark.parametrize("form", ["[  1.234567] ", "Oct  2 18:35:32 n kernel: ", ""])
def test_the_rest_of_a_crash_is_read_though_it_says_little(lines, form):
    """The file of a crash may come after it, in a line with no word of its own."""
    (fault,) = read(*(f"{form}{line}" for line in lines)).faults()

    assert fault.lib == "libx.so"


PASTED = [
    (
        ["  traps: py[9] trap int3 ip:7f", "     sp:7f error:0", "     in a.so[7f+43]"],
        ("trap", 9, "a.so", None),
    ),
    (
        ["py[9]: segfault at 8", "  ip 7f sp 7f error 4 in b.so[7f+43]"],
        ("segfault", 9, "b.so", None),
    ),
    (
        [
            "n kernel: Out of memory: Killed process 9 (py)",
            "  anon-rss:7kB, file-rss:1kB",
        ],
        ("oom_global", 9, None, 7),
    ),
    (
        ["Memory cgroup out of memory:", "   Killed process 9 (py)", "   anon-rss:7kB"],
        ("oom_memcg", 9, None, 7),
    ),
    (
        [
            "[ 1.234567] oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),",
            "    oom_memcg=/a,task_memcg=/a/b,task=py,pid=9,uid=0",
        ],
        ("oom_memcg", 9, None, None),
    ),
    (
        ["NVRM: Xid (PCI:0000:4b:00): 31,", "    pid=9, name=py, Ch 00000008"],
        ("xid", 9, None, None),
    ),
]


MAILED = [
    (
        [
            "> Apr  4 09:08:53 node-1 kernel: [   65.481992] Out of memory: Killed ",
            "> process 9 (py) total-vm:2099436kB, anon-rss:7kB, file-rss:1024kB,",
            "> shmem-rss:0kB, UID:0 pgtables:3904kB oom_score_adj:0",
        ],
        ("oom_global", 9, None, 7),
    ),
    (
        [
            "[  123.456789] python[9]: segfault at 8 ip 00007f1e00000000 sp",
            "00007ffc00000000 error 4 in c.so[7f8690044000+156000]",
        ],
        ("segfault", 9, "c.so", None),
    ),
    (
        [
            "Feb 15 17:37:45 node-1.example kernel: [82659.755847] NVRM: Xid",
            "(PCI:0000:4b:00): 13, pid=9, name=py, Graphics Exception: ESR",
        ],
        ("xid", 9, None, None),
    ),
    (
        [
            "> > Oct 11 06:27:19 node-1 kernel: INFO: task glusterfsd:9 blocked for",
            "> > more than 120 seconds.",
        ],
        ("hung_task", 9, None, None),
    ),
    (
        [
            "May  3 07:01:36 node-1 kernel: [167029.152549] watchdog: BUG: soft lockup",
            "- CPU#0 stuck for 23s! [frigate.output:9]",
        ],
        ("lockup", 9, None, None),
    ),
    (
        [
            "[188988.765862] Memory failure: 0x1840200: Killing",
            "   python:9 due to hardware memory corruption",
        ],
        ("ecc_mem", 9, None, None),
    ),
]


@pytest.mark.parametrize(("lines", "told"), MAILED)
def test_a_record_that_mail_wrapped_is_one(lines, told):
    """Its rest is not indented, but comes where the line before it was full."""
    (fault,) = read(*lines).faults()

    assert (fault.kind, fault.pid, fault.lib, fault.anon_rss_kb) == told


def test_a_path_that_mail_wrapped_is_whole():
    """A cgroup is a long word, and may stand on a line of its own."""
    group = "/docker/34186d9bd07706222bd427bb647ceed81e8e108eb653ff73"
    lines = (f"Task in {group} killed as a result", "of limit of", group)
    (fault,) = read(*lines).faults()

    assert (fault.cgroup, fault.limit_cgroup) == (group, group)


@pytest.mark.parametrize(("lines", "told"), PASTED)
def test_a_record_that_a_copy_wrapped_is_one(lines, told):
    """Its rest is indented deeper, and goes on as the kernel does where it was cut."""
    (fault,) = read(*lines).faults()

    assert (fault.kind, fault.pid, fault.lib, fault.anon_rss_kb) == told


@pytest.mark.parametrize(
    "rest",
    [
        "anon-rss:7kB",
        "  see anon-rss:7kB",
        "  [  1.234567] anon-rss:7kB",
        "(see below)",
        "  Oct 12 18:35:32 n agent[9]: anon-rss:7kB",
    ],
)
def test_a_line_of_its_own_is_no_rest(rest):
    """One that is not indented, has a time, or says something else adds nothing."""
    (fault,) = read("Out of memory: Killed process 9 (py)", rest).faults()

    assert (fault.pid, fault.anon_rss_kb) == (9, None)
    assert fault.text == "Out of memory: Killed process 9 (py)"


def test_the_rest_of_a_record_follows_at_once():
    """A line in between ends a record, as do more lines than one has."""
    head = "Out of memory: Killed process 9 (py)"
    (apart,) = read(head, "x", "  anon-rss:7kB").faults()
    (long,) = read(head, *["  total-vm:1kB"] * 3, "  anon-rss:7kB").faults()

    assert apart.anon_rss_kb is long.anon_rss_kb is None


def test_a_message_of_several_lines_is_read_from_syslog():
    """Many daemons write a line break as #012."""
    text = (
        "NVRM: The NVIDIA GPU 0000:b3:00.0#012NVRM: (PCI ID: 10de:2) installed in "
        "this system has#012NVRM: fallen off the bus and is not responding."
    )
    (fault,) = read(f"Oct 12 18:35:32 n kernel: [ 12.345678] {text}").faults()

    assert (fault.xid, fault.pci) == (79, "0000:b3:00")


@pytest.mark.parametrize(
    ("lines", "remarks"),
    [
        (["6,10,5,-;a", "6,11,5,-;b"], []),
        (["6,10,5,-;a", "6,14,5,-;b"], ["3 records are missing"]),
        (["6,10,5,-;a", "6,12,5,-;b"], ["1 record is missing"]),
        (["6,10,5,-;a", "12,11,5,-;of another", "6,12,5,-;b"], []),
        (["6,10,5,-;a", "6,3,5,-;after a reboot"], []),
        (
            ["[ 1.234567] show_signal_msg: 45 callbacks suppressed"],
            ["the kernel left out records, as there were too many"],
        ),
        (
            ["** 340 printk messages dropped **"],
            ["the kernel left out records, as there were too many"],
        ),
    ],
)
def test_what_is_missing_is_said(lines, remarks):
    """The absence of a record proves nothing, least of all in a log with holes."""
    assert read(*lines).remarks() == remarks


def test_lines_at_once_and_one_by_one_come_to_the_same():
    """Reading many lines at a time is only faster."""
    lines = [f"[ {n}.123456] usb {n}: new device" for n in range(1000)]
    lines[500] = f"[ 500.123456] {KILL}"
    log = SavedLog()
    for line in lines:
        log.take(line.encode())

    assert log.faults() == read(*lines).faults() != []
    assert log.lines == read(*lines).lines == len(lines)


HOSTILE = {
    "words": "ab " * 3000,
    "names": "a:b " * 3000,
    "numbers": "1 " * 4000,
    "brackets": "[" * 8000,
    "blanks": " " * 8000,
    "tags": "kernel: " * 1000,
    "quotes": "> " * 4000,
    "dates": "Jan 1 " * 1000,
    "stamps": "[1.000000] " * 800,
    "escapes": "\x1b[" * 4000,
    "paths": "log/" * 3000,
    "levels": "kern:err:" * 900,
    "copies": "OOMKilling " * 800,
    "repetitions": "message repeated 2 times: [ " * 300,
    "objects": '{"log":' * 2000,
}


@pytest.mark.parametrize("line", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_lines_cost_no_more_than_others(line):
    """However a line is made, it takes no more than some hundred steps."""
    raw = line.encode()
    record_of(raw)  # what is imported and compiled once is no cost of a line
    count = 0

    def follow(_frame, event, _argument):
        nonlocal count
        count += event == "line"
        return follow

    before = sys.gettrace()
    sys.settrace(follow)
    try:
        record_of(raw)
    finally:
        sys.settrace(before)

    assert count < 1500


@given(
    st.lists(
        st.binary()
        | st.text().map(str.encode)
        | st.builds(
            lambda form, text: form.replace("§", text).encode(),
            st.sampled_from([*RENDERINGS.values(), *SIGNED_BY_OTHERS.values()]),
            st.text() | st.just(KILL),
        )
    )
)
def test_no_bytes_make_the_reader_fail(lines):
    """Whatever stands in a file, there are faults in it or there are none."""
    log = SavedLog()
    log.take_all(lines)

    assert all(fault.text.isprintable() for fault in log.faults())
    assert log.lines == len(lines)
