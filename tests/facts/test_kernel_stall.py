"""Tasks and processors that do not move on: every watchdog's words."""

import pytest

from dsup.facts.kernel import Record, match

MINUTE_US = 60_000_000


def records(*lines, apart_us=1000):
    """Give the lines of a log."""
    return [Record(n, n * apart_us, line) for n, line in enumerate(lines)]


@pytest.mark.parametrize("comm", ["python", "kworker/u8:1", "nvc:[driver]", "a b"])
@pytest.mark.parametrize(
    "line",
    [
        "INFO: task @:4177 blocked for more than 120 seconds.",
        "INFO: task @:4177 blocked for more than 368 seconds.",
        "INFO: task @:4177 blocked in I/O wait for more than 122 seconds.",
    ],
)
def test_a_hung_task_is_named_with_any_name(line, comm):
    """Its thread id stands after the last colon; its name may hold others."""
    lines = (
        line.replace("@", comm),
        "      Tainted: P           O      5.15.0-91-generic #101-Ubuntu",
        '"echo 0 > /proc/sys/kernel/hung_task_timeout_secs" disables this message.',
        f"task:{comm}  state:D stack:    0 pid: 4177 ppid:     1 flags:0x00000000",
    )
    (fault,) = match(records(*lines))

    assert (fault.kind, fault.pid, fault.comm) == ("hung_task", 4177, comm)


def test_a_task_that_stays_hung_is_one_fault():
    """It is told of every two minutes, and is still the same trouble."""
    lines = [f"INFO: task a:9 blocked for more than {s} seconds." for s in (122, 245)]

    assert len(match(records(*lines, apart_us=2 * MINUTE_US))) == 1
    assert len(match(records(*lines, apart_us=30 * MINUTE_US))) == 2


def test_tasks_that_hang_together_are_told_each():
    """Which of them is a rank's, the log does not know."""
    lines = [f"INFO: task a:{n} blocked for more than 122 seconds." for n in range(8)]

    assert [f.pid for f in match(records(*lines))] == [*range(8)]


def test_a_service_thread_of_lustre_is_named_by_its_dump():
    """Its watchdog knows the thread alone, the dump after it the name too."""
    lines = (
        "LNet: Service thread pid 4177 was inactive for 40.12s. The thread might be",
        "Pid: 4177, comm: mdt_io01_007 3.10.0-957.el7 #1 SMP",
        "Pid: 4178, comm: other",
    )

    assert [(f.kind, f.pid, f.comm) for f in match(records(*lines))] == [
        ("hung_task", 4177, "mdt_io01_007")
    ]


@pytest.mark.parametrize(
    "head", ["BUG: ", "watchdog: BUG: ", "NMI watchdog: BUG: "], ids=str.strip
)
def test_a_soft_lockup_names_the_task_that_ran(head):
    """The task did not give its processor back."""
    line = f"{head}soft lockup - CPU#12 stuck for 22s! [pt_main_thread:4177]"
    (fault,) = match(records(line, line))

    assert (fault.kind, fault.pid, fault.comm) == ("lockup", 4177, "pt_main_thread")


@pytest.mark.parametrize(
    "line",
    [
        "NMI watchdog: Watchdog detected hard LOCKUP on cpu 9",
        "Watchdog detected hard LOCKUP on cpu 9",
        "watchdog: Watchdog detected hard LOCKUP on cpu 9",
        "watchdog: CPU3: Watchdog detected hard LOCKUP on cpu 9",
        "Watchdog CPU:9 Hard LOCKUP",
        "watchdog: CPU 9 self-detected hard LOCKUP @ futex_wait+0x18/0x90",
        "watchdog: CPU 9 detected hard LOCKUP on other CPUs 10",
        "rcu: INFO: rcu_preempt self-detected stall on CPU",
        "rcu: INFO: rcu_sched detected stalls on CPUs/tasks:",
        "rcu: INFO: rcu_preempt detected expedited stalls on CPUs/tasks: { 9-.... }",
        "INFO: rcu_sched self-detected stall on CPU { 9}  (t=60000 jiffies)",
        "INFO: rcu_bh detected stall on CPU 9 (t=0 jiffies)",
        "BUG: workqueue lockup - pool cpus=9 node=0 flags=0x0 nice=0 stuck for 40s!",
    ],
)
def test_other_lockups_name_no_task(line):
    """Whoever runs in the dump that follows is not said to be to blame."""
    dump = "task:python state:R  running task     stack:    0 pid:551 ppid:554"

    assert [(f.kind, f.pid, f.comm) for f in match(records(line, dump))] == [
        ("lockup", None, None)
    ]


@pytest.mark.parametrize(
    "line",
    [
        "INFO: task python:41 is blocked on a mutex likely owned by task x:42.",
        "Future hung task reports are suppressed, see sysctl kernel.hung_task_warnings",
        "NMI watchdog: Enabled. Permanently consumes one hw-PMU counter.",
        "rcu: Hierarchical RCU implementation.",
        "clocksource: timekeeping watchdog on CPU1: Marking clocksource 'tsc' unstable",
        "train.py: INFO: task python:41 blocked for more than 120 seconds.",
    ],
)
def test_what_only_looks_like_a_stall_is_none(line):
    """What goes along with one, or is said at boot or by others, is no fault."""
    assert match(records(line)) == []
