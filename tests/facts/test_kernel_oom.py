"""Out-of-memory kills: every form of the kernel's words, one fault a victim."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsup.facts.kernel import Record, match

MEMCG = "Memory cgroup out of memory"
SIZES = "total-vm:900kB, anon-rss:700kB, file-rss:60kB"
NOW = f"{SIZES}, shmem-rss:0kB, UID:0 pgtables:9kB oom_score_adj:0"
STACK = " mem_cgroup_out_of_memory+0x4b/0x80"
TABLE = "[  pid  ]   uid  tgid total_vm      rss pgtables_bytes swapents name"
ROW = "[     41]     0    41   225000   175000   1800000        0       0 python"
UNLIMITED = 9007199254740988


def records(*lines):
    """Give the lines of a log, a millisecond apart."""
    return [Record(n, 1000 * n, line) for n, line in enumerate(lines)]


def only(*lines):
    """Return the one fault that the lines tell of."""
    (fault,) = match(records(*lines))
    return fault


def summary(pid, *, comm="python", memcg="/job", lived="/job/a"):
    where = f"oom_memcg={memcg}" if memcg else "global_oom"
    constraint = "MEMCG" if memcg else "NONE"
    return (
        f"oom-kill:constraint=CONSTRAINT_{constraint},nodemask=(null),cpuset=/,"
        f"mems_allowed=0-1,{where},task_memcg={lived},task={comm},pid={pid},uid=0"
    )


def killed(pid, *, comm="python", prefix=MEMCG, rest=NOW):
    return f"{prefix}: Killed process {pid} ({comm}) {rest}"


def trigger(comm="python"):
    return f"{comm} invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0"


def usage(limit_kb, used_kb=None, what="memory"):
    used_kb = limit_kb if used_kb is None else used_kb
    return f"{what}: usage {used_kb}kB, limit {limit_kb}kB, failcnt 7"


def chosen(pid, *, comm="python", prefix="Out of memory"):
    return f"{prefix}: Kill process {pid} ({comm}) score 900 or sacrifice child"


FORMS = {
    "2.6.18 on one line": ("Out of Memory: Killed process 41 (python).",),
    "2.6.18 of RHEL 5": ("Out of memory: Killed process 41, UID 48, (python).",),
    "2.6.24": (
        "Out of memory: kill process 41 (python) score 9 or a child",
        "Killed process 41 (python)",
    ),
    "2.6.32": (chosen(41), f"Killed process 41 (python) vsz:9kB, {SIZES[16:]}"),
    "2.6.32 of RHEL 6": (chosen(41), f"Killed process 41, UID 0, (python) {SIZES}"),
    "3.10 of RHEL 7": (chosen(41), f"Killed process 41 (python), UID 0, {SIZES}"),
    "4.4": (chosen(41), f"Killed process 41 (python) {SIZES}"),
    "4.5": (chosen(41), f"Killed process 41 (python) {SIZES}, shmem-rss:0kB"),
    "second line alone": (f"Killed process 41 (python) {SIZES}",),
    "first line alone": (chosen(41),),
    "5.0": (
        summary(41, memcg="", lived="/u"),
        chosen(41),
        f"Killed process 41 (python) {SIZES}, shmem-rss:0kB",
    ),
    "5.1": (f"Out of memory: Killed process 41 (python) {SIZES}, shmem-rss:0kB",),
    "5.4": (killed(41, prefix="Out of memory"),),
    "the asking task": (killed(41, prefix="Out of memory (oom_kill_allocating_task)"),),
    "no kill line": (summary(41, memcg="", lived="/u"),),
    "the reaper alone": ("oom_reaper: reaped process 41 (python), now anon-rss:0kB",),
    "the reaper in vain": ("oom_reaper: unable to reap pid:41 (python)",),
    "exiting already": (
        "Out of memory: OOM victim 41 (python) is already exiting. Sk",
    ),
    "cut off": ("Out of memory: Killed process 41 (python) total-vm:90",),
}


@pytest.mark.parametrize("lines", FORMS.values(), ids=FORMS.keys())
def test_a_kill_on_the_node_is_told_in_many_forms(lines):
    """Whatever the kernel's age, and whichever lines are left, the victim is named."""
    fault = only(*lines)
    sizes = any("anon-rss:700kB" in line for line in lines)

    assert (fault.kind, fault.pid, fault.comm) == ("oom_global", 41, "python")
    assert fault.anon_rss_kb == (700 if sizes else None)
    assert fault.cgroup == ("/u" if "task_memcg" in lines[0] else None)
    assert (fault.limit_kb, fault.limit_cgroup) == (None, None)


MEMCG_FORMS = {
    "2.6.32": (
        trigger(),
        "Task in /job/a killed as a result of limit of /job",
        usage(1000),
        "Memory cgroup out of memory: kill process 41 (python) score 9 or a child",
        "Killed process 41 (python)",
    ),
    "3.10 of RHEL 7": (
        trigger(),
        "CPU: 3 PID: 41 Comm: python Not tainted 3.10.0 #1",
        " [<ffffffff8117a3be>] ? mem_cgroup_out_of_memory+0x7b/0x90",
        "Task in /job/a killed as a result of limit of /job",
        usage(1000),
        usage(UNLIMITED, 1000, "memory+swap"),
        usage(UNLIMITED, 0, "kmem"),
        "Memory cgroup stats for /job: cache:0KB rss:90KB",
        "Memory cgroup stats for /job/a: cache:0KB rss:900KB",
        "[ pid ]   uid  tgid total_vm      rss nr_ptes swapents oom_score_adj name",
        "[   41]     0    41   225000   175000     370        0             0 python",
        chosen(41, prefix=MEMCG),
        f"Killed process 41 (python), UID 0, {SIZES}",
    ),
    "4.4, its pieces apart": (
        "Task in ",
        "/job/a",
        " killed as a result of limit of ",
        "/job",
        usage(1000),
        chosen(41, prefix=MEMCG),
        f"Killed process 41 (python) {SIZES}",
    ),
    "5.0": (
        usage(1000),
        summary(41),
        chosen(41, prefix=MEMCG),
        f"Killed process 41 (python) {SIZES}",
    ),
    "6.12": (
        trigger(),
        STACK,
        usage(1000),
        usage(UNLIMITED, 0, "swap"),
        "Memory cgroup stats for /job:",
        "anon 900\nfile 0",
        "Tasks state (memory values in pages):",
        TABLE,
        ROW,
        summary(41),
        killed(41),
    ),
    "no kill line": (usage(1000), summary(41)),
    "already exiting": (
        usage(1000),
        summary(41),
        f"{MEMCG}: OOM victim 41 (python) is already exiting. Skip killing the task",
    ),
}


@pytest.mark.parametrize("lines", MEMCG_FORMS.values(), ids=MEMCG_FORMS.keys())
def test_a_kill_in_a_cgroup_tells_its_limit(lines):
    """Limit, its cgroup and the victim's cgroup are told by lines of their own."""
    fault = only(*lines)
    sizes = any("anon-rss:700kB" in line for line in lines)

    assert (fault.kind, fault.pid, fault.comm) == ("oom_memcg", 41, "python")
    assert (fault.cgroup, fault.limit_cgroup) == ("/job/a", "/job")
    assert fault.limit_kb == 1000
    assert fault.anon_rss_kb == (700 if sizes else None)


@pytest.mark.parametrize(
    "comm",
    [
        *("a b", "((resolved))", "(lowpool[11])", "CPU 1/KVM", "runc:[1:CHILD]"),
        *("a) b", "x) total-vm:", "a,task", "\n", r"\xc3", ")", "Killed process "),
    ],
)
@pytest.mark.parametrize(
    "line",
    [killed(41, comm="@"), chosen(41, comm="@"), summary(41, comm="@")],
    ids=["killed", "chosen", "summary"],
)
def test_a_name_may_hold_anything(line, comm):
    """The name of a task is its maker's choice, and no part of the kernel's words."""
    fault = only(line.replace("@", comm))

    assert (fault.pid, fault.comm) == (41, comm)


def test_a_path_may_hold_anything():
    """A cgroup's name is its maker's choice, and no part of the kernel's words."""
    path = r"/a b,task=x,pid=9,uid=9/c:d\x2de"
    stats = f"Memory cgroup stats for {path}: cache:0KB rss:9KB"
    first, second = match(records(summary(41, lived=path), stats, killed(42)))

    assert (first.pid, first.cgroup) == (41, path)
    assert (second.pid, second.limit_cgroup) == (42, path)


def test_the_victim_may_be_a_child_of_the_chosen():
    """Old kernels chose a parent and killed a child, told only by the second line."""
    fault = only(
        trigger(),
        usage(1000),
        chosen(41, prefix=MEMCG),
        f"Killed process 43 (child) {SIZES}",
    )

    assert (fault.kind, fault.pid, fault.comm) == ("oom_memcg", 43, "child")
    assert (fault.anon_rss_kb, fault.limit_kb) == (700, 1000)


def test_a_chosen_task_long_ago_is_no_childs_parent():
    """Lines that are far apart in time have nothing to do with each other."""
    late = Record(9, 70_000_000, f"Killed process 43 (other) {SIZES}")
    first, second = match([*records(chosen(41, prefix=MEMCG)), late])

    assert (first.kind, first.pid) == ("oom_memcg", 41)
    assert (second.kind, second.pid) == ("oom_global", 43)


def test_a_pid_that_comes_again_is_another_victim():
    """Pids are reused; a kill's own lines are not minutes apart."""
    again = Record(9, 70_000_000, killed(41, comm="later"))
    faults = match([*records(killed(41), killed(41)), again])

    assert [fault.comm for fault in faults] == ["python", "later"]


def test_all_tasks_of_a_group_are_victims_of_one_limit():
    """With memory.oom.group each task has its line, and the limit is told once."""
    faults = match(
        records(
            trigger(),
            usage(1000),
            summary(41, lived="/job/a"),
            killed(41),
            "Tasks in /job are going to be killed due to memory.oom.group set",
            killed(41),
            killed(42, comm="pt_data_worker"),
            killed(43),
        )
    )

    assert [(fault.pid, fault.cgroup) for fault in faults] == [
        (41, "/job/a"),
        (42, "/job"),
        (43, "/job"),
    ]
    assert {(fault.limit_kb, fault.limit_cgroup) for fault in faults} == {
        (1000, "/job")
    }


def test_a_kill_after_a_groups_is_not_of_the_group():
    """The next scene begins with its own trigger."""
    faults = match(
        records(
            summary(41),
            killed(41),
            "Tasks in /job are going to be killed due to memory.oom.group set",
            killed(42),
            trigger(),
            "Memory cgroup stats for /other:",
            killed(43),
        )
    )

    assert [fault.cgroup for fault in faults] == ["/job/a", "/job", "/other"]


@pytest.mark.parametrize(
    ("usages", "limit_kb"),
    [
        pytest.param([usage(1000)], 1000, id="memory"),
        pytest.param([usage(1000, 999)], 1000, id="nearly full"),
        pytest.param([usage(1000, 10)], 1000, id="the only one"),
        pytest.param(
            [usage(1000), usage(1000, 1000, "memory+swap")], 1000, id="both are full"
        ),
        pytest.param(
            [usage(1000, 10), usage(2000, 2000, "memory+swap")], 2000, id="swap, too"
        ),
        pytest.param(
            [usage(1000, 10), usage(300, 300, "kmem")], 300, id="kernel memory"
        ),
        pytest.param([usage(UNLIMITED, 5)], None, id="none is set"),
        pytest.param([usage(0, 5)], None, id="nothing is allowed"),
        pytest.param([], None, id="not told"),
    ],
)
def test_the_limit_is_the_one_that_was_reached(usages, limit_kb):
    """Version 1 has three limits; the full one is what the victim died of."""
    assert only(trigger(), *usages, summary(41), killed(41)).limit_kb == limit_kb


def test_scenes_in_turn_keep_their_limits():
    """Each victim has the limit of its own cgroup, kill after kill."""
    lines = []
    for pid in (41, 42, 43):
        group = f"Task in /{pid}/a killed as a result of limit of /{pid}"
        lines += [trigger(), group, usage(pid * 10), chosen(pid, prefix=MEMCG)]
        lines += [f"Killed process {pid} (python) {SIZES}"]
    faults = match(records(*lines))

    assert [(f.pid, f.cgroup, f.limit_cgroup, f.limit_kb) for f in faults] == [
        (pid, f"/{pid}/a", f"/{pid}", pid * 10) for pid in (41, 42, 43)
    ]


def test_scenes_at_once_leave_the_limit_open():
    """Where nothing tells whose a limit is, it is nobody's, and not another's."""
    faults = match(
        records(
            "Task in /a killed as a result of limit of /a",
            "Task in /b killed as a result of limit of /b",
            usage(100),
            usage(200),
            chosen(41, prefix=MEMCG),
            chosen(42, prefix=MEMCG),
            f"Killed process 42 (python) {SIZES}",
            f"Killed process 41 (python) {SIZES}",
        )
    )

    assert [(f.kind, f.pid, f.cgroup, f.limit_kb) for f in faults] == [
        ("oom_memcg", 41, None, None),
        ("oom_memcg", 42, None, None),
    ]


def test_a_kill_on_the_node_takes_no_cgroups_limit():
    """A scene that plays in a cgroup is not that of a victim of the whole node."""
    faults = match(
        records(
            trigger(),
            usage(100),
            killed(41, prefix="Out of memory"),
            killed(42),
        )
    )

    assert [(f.kind, f.pid, f.limit_kb) for f in faults] == [
        ("oom_global", 41, None),
        ("oom_memcg", 42, 100),
    ]


@pytest.mark.parametrize(
    ("lines", "kind", "cgroup"),
    [
        pytest.param([trigger()], "oom_global", None, id="the trigger alone"),
        pytest.param([trigger(), "Mem-Info:"], "oom_global", None, id="on the node"),
        pytest.param([trigger(), STACK], "oom_memcg", None, id="by its stack"),
        pytest.param(
            ["Memory cgroup stats for /job/a: cache:0KB rss:9KB", ROW],
            "oom_memcg",
            "/job/a",
            id="only its dump",
        ),
        pytest.param(
            ["Tasks in /job are going to be killed due to memory.oom.group set"],
            "oom_memcg",
            "/job",
            id="a group",
        ),
        pytest.param(
            [trigger(), usage(9), "Out of memory and no killable processes..."],
            "oom_memcg",
            None,
            id="nobody can be killed",
        ),
    ],
)
def test_a_scene_without_its_victim_is_told_without_a_pid(lines, kind, cgroup):
    """That memory ran out is known though the line with the victim is not there."""
    fault = only(*lines)

    assert (fault.kind, fault.pid, fault.cgroup) == (kind, None, cgroup)


def test_the_fault_names_the_last_line():
    """Number, time and text are those of the kill, not of what led to it."""
    fault = only(trigger(), usage(9), summary(41), killed(41))

    assert (fault.seq, fault.at_us, fault.text) == (3, 3000, killed(41))


LOOK_ALIKES = """\
systemd[1]: job.service: Main process exited, code=killed, status=9/KILL
systemd[1]: job.service: A process of this unit has been killed by the OOM killer.
systemd-oomd[9]: Killed /job due to memory pressure for /job being 80%
sending SIGTERM to process 41 "python": badness 209, VmRSS 2891 MiB
line 28:  8156 Killed                  python train.py
slurmstepd: error: Detected 1 oom_kill event in StepId=1.0
Memory cgroup out of memory: killed 1 task on node7
kubelet[3]: Cgroup OOM encountered, victim process: python, pid: 41
oom_adj is deprecated, please use oom_score_adj instead
python (41): /proc/41/oom_adj is deprecated, please use /proc/41/oom_score_adj
*** Process received signal ***
OOM killer enabled.
OOM killer disabled.
oom killer 41 (python) has mm pinned by 42 (python)
talos: OOM controller triggered
see above: Out of memory: Killed process 41 (python) total-vm:9kB
Killed process
Memory cgroup out of memory
""".splitlines()


@pytest.mark.parametrize("line", LOOK_ALIKES)
def test_what_only_looks_like_a_kill_is_none(line):
    """Words of other programs, and of the kernel about other things, are no kill."""
    assert match(records(line)) == []


def test_a_stack_of_something_else_is_no_kill():
    """A task that hangs on the way to a kill is not out of memory."""
    faults = match(records("INFO: task python:41 blocked for more than", STACK))

    assert [fault.kind for fault in faults] == ["hung_task"]


def scene(pid, kind):
    """Give the lines of one kill, of a form in which its last lines name the pid."""
    lived = {"comm": f"c{pid}", "memcg": f"/{pid}", "lived": f"/{pid}/a"}
    if kind == "summary":
        return [
            trigger(),
            usage(pid),
            summary(pid, **lived),
            killed(pid, comm=f"c{pid}"),
        ]
    old = f"Killed process {pid} (c{pid}) {SIZES}"
    group = f"Task in /{pid}/a killed as a result of limit of /{pid}"
    prefix = MEMCG if kind == "old" else "Out of memory"
    lines = [chosen(pid, comm=f"c{pid}", prefix=prefix), old]
    return [trigger(), group, usage(pid), *lines] if kind == "old" else lines


@given(
    st.lists(st.sampled_from(["summary", "old", "node"]), min_size=1, max_size=5),
    st.randoms(use_true_random=False),
)
def test_interleaved_kills_are_never_mixed(kinds, chance):
    """In whatever order lines of several CPUs come, none is another victim's."""
    scenes = [scene(pid, kind) for pid, kind in enumerate(kinds, 41)]
    order = [n for n, lines in enumerate(scenes) for _ in lines]
    chance.shuffle(order)
    faults = match(records(*(scenes[n].pop(0) for n in order)))

    assert sorted(f.pid for f in faults if f.pid) == list(range(41, 41 + len(kinds)))
    for fault in faults:
        if fault.pid:
            kind = kinds[fault.pid - 41]
            assert fault.kind == ("oom_global" if kind == "node" else "oom_memcg")
            assert fault.comm == f"c{fault.pid}"
            assert fault.limit_kb in (None, fault.pid)
            assert fault.cgroup in (None, f"/{fault.pid}/a")
            assert fault.cgroup or kind != "summary"


WORDS = re.findall(
    r"\S+|\s",
    "\n".join(
        [
            *(line for lines in FORMS.values() for line in lines),
            *(line for lines in MEMCG_FORMS.values() for line in lines),
        ]
    ),
)


@given(st.lists(st.lists(st.sampled_from(WORDS) | st.text(max_size=3), max_size=12)))
def test_no_text_makes_the_matcher_fail(lines):
    """Whatever stands in the log, there are faults or there are none."""
    faults = match(records(*("".join(words) for words in lines)))

    assert all(f.text.isprintable() for f in faults)


TRIGGER = "py invoked oom-killer: gfp_mask=0x1, order=0, oom_score_adj=0"


@pytest.mark.parametrize(
    ("stack", "kind"),
    [
        (
            ["out_of_memory+0x1", "try_charge_memcg+0x2", "charge_memcg+0x3"],
            "oom_memcg",
        ),
        (["try_charge+0x2/0x9", "mem_cgroup_try_charge_delay+0x3/0x9"], "oom_memcg"),
        (["__mem_cgroup_try_charge.constprop.7+0x2/0x9"], "oom_memcg"),
        (
            ["mem_cgroup_oom_synchronize+0x2", "pagefault_out_of_memory+0x3"],
            "oom_memcg",
        ),
        (["try_charge_memcg+0x2", "__alloc_pages_noprof+0x3"], "oom_memcg"),
        (["__alloc_pages_slowpath.constprop.0+0x2", "charge_memcg+0x3"], "oom_global"),
        (["? try_charge_memcg+0x2/0x9", "out_of_memory+0x1"], "oom_global"),
        (["[<ffffffff811bd1ce>] __mem_cgroup_try_charge+0xb/0x9"], "oom_memcg"),
        (["[<ffffffff811bd1ce>] ? __mem_cgroup_try_charge+0xb/0x9"], "oom_global"),
        (["out_of_memory+0x1"], "oom_global"),
    ],
)
def test_the_triggers_stack_tells_whose_limit_it_was(stack, kind):
    """Where the log ends before a limit or a victim, the innermost caller decides."""
    lines = [TRIGGER, "Call Trace:", *(f" {one}" for one in stack)]
    (fault,) = match([Record(n, n, line) for n, line in enumerate(lines)])

    assert (fault.kind, fault.pid) == (kind, None)
