"""Crashes and refused forks: every form of the kernel's words, and look-alikes."""

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsup.facts.kernel import KernelFault, Record, match

SEGV, ILL, TRAP, BUS, FPE = 11, 4, 5, 7, 8
IP = "ip 00007f8690 sp 00007ffcb1"
TRAPPED = "ip:7fe588 sp:7fe555 error:0"
MAPPED = "libx.so[7f8690044000+156000]"


def records(*lines):
    """Give the lines of a log, a microsecond apart."""
    return [Record(n, n, line) for n, line in enumerate(lines)]


def told(faults):
    """Return what matters of faults: kind, thread, name, file, signal, address."""
    return [(f.kind, f.pid, f.comm, f.lib, f.signum, f.address) for f in faults]


@pytest.mark.parametrize(
    ("line", "lib", "address"),
    [
        pytest.param(
            f"python[41]: segfault at 8 {IP} error 4 in {MAPPED}",
            "libx.so",
            8,
            id="up to 6.11",
        ),
        pytest.param(
            f"python[41]: segfault at 0 {IP} error 4 in"
            " libc.so.6[98f0a,7f8690044000+156000] likely on CPU 1 (core 1, socket 0)",
            "libc.so.6",
            0,
            id="6.12",
        ),
        pytest.param(
            f"python[41]: segfault at 7ffdb367d908 {IP} error 14",
            None,
            0x7FFDB367D908,
            id="in no file",
        ),
        pytest.param(
            f"python[41]: segfault at 0 {IP} error 6 in a b[c].so (deleted)[7f+1]",
            "a b[c].so",
            0,
            id="a file with blanks, deleted",
        ),
        pytest.param(
            "python[41]: segfault at 0000000000000008 rip 00002b rsp 0000 error 4",
            None,
            8,
            id="2.6.18",
        ),
        pytest.param(
            "python[41]: segfault at b7e eip b7e esp bfa error 4",
            None,
            0xB7E,
            id="32 bits",
        ),
        pytest.param(
            f"python[41]: segfault (11) at 8 nip 7f1e lr 7f1e code 1 in {MAPPED}",
            "libx.so",
            8,
            id="POWER",
        ),
        pytest.param(
            "python[41]: unhandled level 3 translation fault (11) at 0x00000028,"
            " esr 0x92000047",
            None,
            0x28,
            id="arm64, 4.9",
        ),
        pytest.param(
            "python[41]: unhandled level 2 translation fault (11) at 0x00000028,"
            f" esr 0x92000006, in {MAPPED}",
            "libx.so",
            0x28,
            id="arm64, 4.14",
        ),
        pytest.param(
            "python[41]: unhandled exception: DABT (lower EL), ESR 0x92000006,"
            f" level 2 translation fault in {MAPPED}",
            "libx.so",
            None,
            id="arm64, 5.15",
        ),
        pytest.param(
            "python[41]: unhandled exception: IABT (lower EL), ESR"
            " 0x000000008200000f, level 3 permission fault",
            None,
            None,
            id="arm64, 6.12, in no file",
        ),
        pytest.param(
            f"python[41]: unhandled signal 11 code 0x1 at 0x0028 in {MAPPED}",
            "libx.so",
            0x28,
            id="RISC-V",
        ),
    ],
)
def test_a_segmentation_fault_is_told_in_many_forms(line, lib, address):
    """Thread, file and address are found on every processor and kernel."""
    faults = match(records(line, "Code: Bad RIP value."))

    assert told(faults) == [("segfault", 41, "python", lib, SEGV, address)]
    assert (faults[0].seq, faults[0].at_us, faults[0].text) == (0, 0, line)


@pytest.mark.parametrize(
    ("line", "kind", "signum"),
    [
        (f"traps: python[41] trap invalid opcode {TRAPPED}", "trap", ILL),
        (f"traps: python[41] trap divide error {TRAPPED}", "trap", FPE),
        (f"traps: python[41] trap int3 {TRAPPED}", "trap", TRAP),
        (f"traps: python[41] trap stack segment {TRAPPED}", "trap", BUS),
        (f"traps: python[41] trap something new {TRAPPED}", "trap", None),
        (f"traps: python[41] control protection {TRAPPED}", "trap", SEGV),
        (f"python[41] trap divide error r{TRAPPED}", "trap", FPE),
        (f"traps: python[41] general protection {TRAPPED}", "gpf", SEGV),
        (f"traps: python[41] general protection fault {TRAPPED}", "gpf", SEGV),
        (f"python[41] general protection r{TRAPPED}", "gpf", SEGV),
        ("python[41]: unhandled alignment fault (7) at 0x9, esr 0x9", "segfault", BUS),
        ("python[41]: unhandled exception: DABT, alignment fault", "segfault", BUS),
        ("python[41]: unhandled exception: Undefined instruction", "trap", ILL),
        (
            "python[41]: unhandled exception: BRK (AArch64), ESR 0xf2000001",
            "trap",
            TRAP,
        ),
        ("python[41]: unhandled exception: something new", "segfault", None),
        ("python[41]: unhandled signal 4 code 0x1 at 0x9", "trap", ILL),
    ],
)
@pytest.mark.parametrize("lib", [None, "libx.so"], ids=["no file", "in a file"])
def test_a_trap_names_its_signal(line, kind, signum, lib):
    """Which signal a trap raises is told where the trap is a known one."""
    (fault,) = match(records(f"{line} in {MAPPED}" if lib else line))

    assert (fault.kind, fault.pid, fault.comm) == (kind, 41, "python")
    assert (fault.lib, fault.signum) == (lib, signum)


@pytest.mark.parametrize(
    "comm",
    ["a b", "a[1]", "[x]: segfault ", "CPU 1/KVM", "runc:[1:CHILD]", "traps: x", "\n"],
)
@pytest.mark.parametrize(
    "line",
    [f"@[41]: segfault at 8 {IP}", f"traps: @[41] trap int3 {TRAPPED}"],
    ids=["segfault", "trap"],
)
def test_a_name_may_hold_anything(line, comm):
    """The name of a task is its maker's choice, and no part of the kernel's words."""
    (fault,) = match(records(line.replace("@", comm)))

    assert (fault.pid, fault.comm) == (41, comm)


def test_a_file_may_be_named_as_a_record():
    """A file that is mapped begins no record, whatever its name."""
    name = "a\nOut of memory: Killed process 1 (init) in y[1+1]"
    (fault,) = match(records(f"python[41]: segfault at 8 {IP} error 4 in {name}[7f+1]"))

    assert (fault.kind, fault.pid, fault.lib) == ("segfault", 41, name)
    assert "\n" not in fault.text


@pytest.mark.parametrize(
    ("lines", "libs"),
    [
        pytest.param(["A", f" in {MAPPED}"], ["libx.so"], id="the next record"),
        pytest.param(
            ["A", "eth0: link up", f" in {MAPPED}"], ["libx.so"], id="one between"
        ),
        pytest.param(
            ["A", "B", f" in {MAPPED}", " in y[1+1]"], [None, None], id="of two at once"
        ),
        pytest.param(
            [f"A in {MAPPED}", "B", " in y[1+1]"], ["libx.so", "y"], id="of the other"
        ),
        pytest.param(["A", *["noise"] * 5, " in y[1+1]"], [None], id="too late"),
        pytest.param([f" in {MAPPED}", "A"], [None], id="too early"),
    ],
)
def test_the_file_may_be_a_record_of_its_own(lines, libs):
    """It goes to the one crash that it can belong to, and never to another's."""
    heads = {"A": "traps: a[41] trap int3 ip:7f", "B": f"b[42]: segfault at 8 {IP}"}
    faults = match(records(*(heads.get(x[0], "") + x.lstrip("AB") for x in lines)))

    assert [fault.lib for fault in faults] == libs


DUMP = "CPU: 3 PID: 41 Comm: fail 2 ban Not tainted 3.16.7 #1"


@pytest.mark.parametrize(
    ("head", "kind"),
    [
        ("general protection fault: 0000 [#1] SMP ", "gpf"),
        ("general protection fault, probably for x 0xde: 0000 [#3] SMP NOPTI", "gpf"),
        ("Oops: general protection fault, maybe for address 0x9: 0000 [#1] SMP", "gpf"),
        ("invalid opcode: 0000 [#1] SMP", "trap"),
        ("divide error: 0000 [#1] SMP PTI", "trap"),
    ],
)
@pytest.mark.parametrize(
    "dump",
    [
        DUMP,
        "CPU: 3 UID: 0 PID: 41 Comm: fail 2 ban Kdump: loaded Tainted: P   O  6.12 #1",
        "Pid: 41, comm: fail 2 ban Not tainted 2.6.32 #1",
        "CPU: 3 PID: 41 Comm: fail 2 ban",
    ],
    ids=["3.16", "6.12", "2.6.32", "cut off"],
)
def test_a_crash_of_the_kernel_is_the_tasks_it_ran_for(head, kind, dump):
    """Its dump names the task; which signal ends that is not certain."""
    faults = match(records(head, "Modules linked in: nvidia", dump, "RIP: 0010:x"))

    assert told(faults) == [(kind, 41, "fail 2 ban", None, None, None)]


def test_two_crashes_of_the_kernel_at_once_name_no_task():
    """Where nothing tells whose a dump is, it is nobody's."""
    head = "general protection fault: 0000 [#1] SMP"

    assert [f.pid for f in match(records(head, head, DUMP, DUMP))] == [None, None]


@pytest.mark.parametrize(
    ("lines", "cgroups"),
    [
        pytest.param(["@/a b/c.service"], ["/a b/c.service"], id="plain"),
        pytest.param(["@/a", "@/b", "@/a"], ["/a", "/b"], id="each once"),
        pytest.param(["@", "/a"], ["/a"], id="the path apart"),
        pytest.param(["@", "eth0: link up", "/a"], [None], id="the path lost"),
    ],
)
def test_a_refused_fork_names_its_cgroup(lines, cgroups):
    """The kernel tells it once for each cgroup, and names no process."""
    words = "cgroup: fork rejected by pids controller in "
    faults = match(records(*(line.replace("@", words) for line in lines)))

    assert [(f.kind, f.pid, f.cgroup) for f in faults] == [
        ("pids_limit", None, cgroup) for cgroup in cgroups
    ]


LOOK_ALIKES = """\
audit: type=1701 audit(1.2:3): auid=0 uid=0 pid=41 comm="python" sig=11 res=1
systemd-coredump[7826]: Process 334 (python) of user 0 dumped core.
[1]    2252737 bus error (core dumped)  python train.py
Segmentation fault (core dumped)
Fatal Python error: Segmentation fault
*** Process received signal ***
user[41]: this is in red
the kernel said: python[41]: segfault
python: potentially unexpected fatal signal 11.
BUG: unable to handle page fault for address: ffff
cgroup: fork accepted
see cgroup: fork rejected by pids controller in /a
 in libx.so[7f+1]
CPU: 3 PID: 41 Comm: python Not tainted 6.12 #1
""".splitlines()


@pytest.mark.parametrize("line", LOOK_ALIKES)
def test_what_only_looks_like_a_crash_is_none(line):
    """Words of other programs, and of the kernel about other things, are no crash."""
    assert match(records(line)) == []


def test_faults_come_in_the_order_of_the_log():
    """Kinds are looked for one by one, and told as they happened."""
    lines = [
        "cgroup: fork rejected by pids controller in /a",
        f"python[41]: segfault at 8 {IP}",
        "Out of memory: Killed process 42 (python) total-vm:9kB",
        f"traps: python[43] trap int3 {TRAPPED}",
    ]
    kinds = ["pids_limit", "segfault", "oom_global", "trap"]

    assert [f.kind for f in match(records(*lines))] == kinds
    assert [f.kind for f in match(records(*reversed(lines)))] == kinds[::-1]


HOSTILE = {
    "names": "[1]: " * 1700,
    "files": f"python[41]: segfault at 8 {IP}" + " in x[1+" * 1000,
    "a file after another": f"x[41]: segfault at 8 {IP} in " + "[1,1+1" * 1400,
    "digits": "Killed process " + "1" * 8000,
    "brackets": "Killed process 41 (" + "(x) " * 2000,
    "paths": "Task in /" + " killed as a result of limit of" * 250,
    "colons": "Memory cgroup stats for /" + ":a:" * 2700,
    "blanks": "Memory cgroup stats for /a:" + " " * 8000 + "x",
    "fields": "oom-kill:constraint=CONSTRAINT_MEMCG," + ",task=,task_memcg=" * 400,
    "an end": "oom-kill:constraint=CONSTRAINT_NONE," + ",pid=1,uid=1" * 600 + ",",
    "triggers": "x invoked oom-killer: gfp_mask=0",
    "usages": "memory: usage 1kB, limit 1kB, failcnt 1",
    "choices": "Out of memory: Kill process 41 (x) score 1 or sacrifice child",
    "paths apart": "cgroup: fork rejected by pids controller in ",
    "slashes": "/" * 8000,
    "oopses": "general protection fault: 0000 [#1] SMP",
    "xids": "NVRM: Xid (PCI:0000:01:00" + " GPU-I:05" * 900,
    "names of xids": "NVRM: Xid (PCI:0000:01:00): 31, pid=1, name=" + "x " * 4000,
    "tasks": "INFO: task " + "x:1" * 2700,
    "lockups": "watchdog: BUG: soft lockup - CPU#1 stuck for 22s! [" + "a:1]" * 2000,
    "blocks": "{1}[Hardware Error]: " + " " * 8000,
    "pages": "Memory failure: 0x1: Killing " + "a:1 due " * 1000,
    "ports": "pcieport 0000:00:01.0: " + "AER: " * 1600,
    "disks": "sd 1:1:1:1: [" + "sda" * 2700,
    "file systems": "EXT4-fs error (device sda1): " + "x: comm " * 1000,
    "drives": "nvme nvme0: I/O 1 " + "timeou" * 1300,
    "servers": "Lustre: " + "Request sent has " * 480,
    "adapters": "mlx5_core 0000:01:00.0: " + "Link " * 1600,
}


def steps(lines):
    """Return how many lines of Python a match runs: its cost on any machine."""
    log = [Record(None, None, line) for line in lines]
    match(log)  # what is imported and compiled once is no cost of a line
    count = 0

    def follow(_frame, event, _argument):
        nonlocal count
        count += event == "line"
        return follow

    before = sys.gettrace()
    sys.settrace(follow)
    try:
        match(log)
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize("line", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_lines_cost_no_more_than_others(line):
    """However a record is made, it takes no more than some hundred steps."""
    assert steps([line] * 100) < 100 * 500


@pytest.mark.slow
@pytest.mark.parametrize(
    "form",
    [
        "Killed process {} (x)",
        "Out of memory: Kill process {} (x) score 9 or sacrifice child",
        "x[{}]: segfault at 8 ip 7f sp 7f",
        "cgroup: fork rejected by pids controller in /{}",
        "Task in /{} killed as a result of limit of /x",
    ],
)
def test_the_cost_is_in_proportion_to_the_log(form):
    """Ten times as many faults take about ten times the steps, not a hundred times."""
    few, many = (steps([form.format(n) for n in range(m)]) for m in (100, 1000))

    assert many < 12 * few


@given(st.lists(st.text() | st.sampled_from([*HOSTILE.values(), *LOOK_ALIKES, DUMP])))
def test_no_text_makes_the_matcher_fail(lines):
    """Whatever stands in the log, there are faults or there are none."""
    faults = match(records(*lines))

    assert all(isinstance(fault, KernelFault) for fault in faults)
