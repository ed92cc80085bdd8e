"""Ranks as processes: what they start with, how they are signalled and collected."""

import fcntl
import os
import select
import signal
import subprocess
import sys
import time
from functools import partial
from itertools import islice, permutations

import pytest

from dsup.core.errors import SpawnError
from dsup.edges import group
from dsup.edges.heartbeats import Page
from dsup.edges.loop import Loop
from dsup.linux import proc

F_GETPIPE_SZ = 1032
SLEEP = ["sleep", "600"]
LIMIT_S = 600
ENVIRONMENT = {"PATH": os.environ["PATH"]}


@pytest.fixture
def page():
    """Make a heartbeat page."""
    made = Page(0, 4)
    yield made
    made.close()


class Spawn:
    """Starts ranks with a worker group, which is ``group``."""

    def __init__(self, page):
        self.group, self.page, self.ranks = group.WorkerGroup(), page, []

    def __call__(self, argv, environments=(ENVIRONMENT,)):
        """Return the ranks of a command, one for each environment."""
        before = len(self.ranks)
        starts = [group.Start(argv, environment) for environment in environments]
        for rank in self.group.spawn(starts, self.page.fd):
            self.ranks.append(rank)
        return self.ranks[before:]

    def end(self):
        """Leave nothing behind."""
        for rank in self.ranks:
            if rank.pid in self.group.pids:
                signal.pidfd_send_signal(rank.pidfd, signal.SIGKILL)
                self.group.reap(rank)
            os.close(rank.out)
            os.close(rank.err)
            os.close(rank.notes)


def read_all(fd):
    parts = []
    while part := os.read(fd, 65_536):
        parts.append(part)
    return b"".join(parts).decode()


def line_of(fd):
    assert select.select([fd], [], [], LIMIT_S)[0], "a rank said nothing"
    return os.read(fd, 4096).decode()


def wait_until_dead(rank):
    assert select.select([rank.pidfd], [], [], LIMIT_S)[0], "a rank did not end"


@pytest.fixture
def spawn(page):
    """Start ranks; whatever still runs is killed after the test."""
    spawning = Spawn(page)
    yield spawning
    spawning.end()


def test_a_rank_has_its_own_environment_and_streams(spawn):
    """Nothing of dsup's environment gets there by itself."""
    (rank,) = spawn(["sh", "-c", "env; echo err >&2"], [{"PATH": "/bin", "A": "x"}])
    names = {line.partition("=")[0] for line in read_all(rank.out).splitlines()}

    assert {"PATH", "A"} <= names <= {"PATH", "A", "PWD", "SHLVL", "_"}
    assert read_all(rank.err) == "err\n"


def test_ranks_get_their_environments_in_order(spawn):
    """Rank n gets the nth, and its pipes are its own."""
    environments = [ENVIRONMENT | {"RANK": str(rank)} for rank in range(4)]
    ranks = spawn(["sh", "-c", "echo $RANK"], environments)

    assert [rank.rank for rank in ranks] == [0, 1, 2, 3]
    assert [read_all(rank.out) for rank in ranks] == ["0\n", "1\n", "2\n", "3\n"]


def test_a_rank_is_known_as_soon_as_it_runs(page):
    """Each is handed over before the next is started."""
    workers, known = group.WorkerGroup(), []
    for rank in workers.spawn([group.Start(["true"], ENVIRONMENT)] * 3, page.fd):
        known.append(len(workers.pids))
        os.close(rank.out)
        os.close(rank.err)
        wait_until_dead(rank)
        workers.reap(rank)

    assert known == [1, 1, 1]


def test_a_rank_leads_a_session_of_its_own(spawn):
    """A Ctrl-C at the terminal reaches dsup, and it alone tells the ranks."""
    code = "import os; print(os.getsid(0) == os.getpgid(0) == os.getpid())"
    (rank,) = spawn([sys.executable, "-ISc", code])

    assert read_all(rank.out) == "True\n"


INHERITED = """
import os
from dsup.edges import group
from dsup.edges.heartbeats import Page
page = Page(0, 1)
code = "import os; print([os.fstat(n).st_ino for n in range(3)], os.getsid(0))"
start = group.Start([{python!r}, "-ISc", code], os.environ)
group.close_inherited((page.fd,))
print([os.fstat(n).st_ino for n in range(3)], flush=True)
for rank in group.WorkerGroup().spawn([start], page.fd, inherit=True):
    print(rank.pid, rank.out, rank.err, flush=True)
    os.waitpid(rank.pid, 0)
"""


def test_a_rank_may_have_dsups_own_streams():
    """All three, and all the same a session of its own; there is nothing to read."""
    done = subprocess.run(
        [sys.executable, "-c", INHERITED.format(python=sys.executable)],
        capture_output=True,
        text=True,
        check=False,
    )
    own, rank, (pid, *ends) = [
        *done.stdout.splitlines()[:1],
        next(line for line in done.stdout.splitlines()[1:] if line[0] == "["),
        next(line for line in done.stdout.splitlines()[1:] if line[0] != "[").split(),
    ]

    assert rank == f"{own} {pid}"
    assert ends == ["-1", "-1"]


SIGNALS = """
import os, signal, sys
from dsup.edges import group
from dsup.edges.heartbeats import Page
for number in {ignored}:
    signal.signal(number, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
page = Page(0, 1)
argv = ["grep", "Sig[BI]", "/proc/self/status"]
for rank in group.WorkerGroup().spawn([group.Start(argv, os.environ)], page.fd):
    print(os.read(rank.out, 4096).decode())
"""


@pytest.mark.parametrize(
    "ignored",
    [
        pytest.param([], id="by Python itself"),
        pytest.param([2, 3, 13, 15, 25], id="by whoever started dsup"),
    ],
)
def test_a_rank_starts_with_default_signals_and_none_blocked(ignored):
    """What dsup blocks, and what Python or a shell ignores, is not handed down."""
    done = subprocess.run(
        [sys.executable, "-c", SIGNALS.format(ignored=ignored)],
        capture_output=True,
        check=True,
        text=True,
    )
    masks = dict(line.split(":\t") for line in done.stdout.split("\n") if line)

    assert int(masks["SigBlk"], 16) == 0
    # 32 and 33 are glibc's own: it leaves them ignored, and takes them when needed.
    assert int(masks["SigIgn"], 16) & ~(1 << 31 | 1 << 32) == 0


LEAKY = """
import json, os, socket
from dsup.edges import group
from dsup.edges.heartbeats import Page
leaks = [os.open("/dev/null", os.O_RDONLY), *os.pipe(), socket.socket().detach()]
for number in (*leaks, 100, 200):
    os.dup2(leaks[0], number)
group.close_inherited(())
page = Page(0, 2)
code = '''
import os
def is_open(fd):
    try:
        return os.fstat(fd)
    except OSError:
        return None
print([fd for fd in range(256) if is_open(fd)])
'''
argv = [{python!r}, "-ISc", code]
for rank in group.WorkerGroup().spawn([group.Start(argv, os.environ)] * 2, page.fd):
    print(os.read(rank.out, 4096).decode(), end="", flush=True)
"""


def test_no_descriptor_leaks_into_a_rank():
    """A rank has its three streams and the page, whatever dsup was started with."""
    done = subprocess.run(
        [sys.executable, "-c", LEAKY.format(python=sys.executable)],
        capture_output=True,
        check=True,
        text=True,
    )

    assert done.stdout.splitlines() == ["[0, 1, 2, 3, 4]"] * 2


def test_the_page_is_descriptor_three(spawn, page):
    """A rank finds the very page that the agent reads."""
    code = "import os; print(os.fstat(3).st_ino, os.readlink('/proc/self/fd/3'))"
    (rank,) = spawn([sys.executable, "-ISc", code])
    inode, name, *_ = read_all(rank.out).split()

    assert int(inode) == os.fstat(page.fd).st_ino
    assert name == "/memfd:dsup-heartbeats"


def test_pipes_are_large_where_that_is_allowed(spawn):
    """256 KiB let a rank write on while the scribe is busy."""
    (rank,) = spawn(["head", "-c", "262144", "/dev/zero"])
    wait_until_dead(rank)

    assert fcntl.fcntl(rank.out, F_GETPIPE_SZ) == 262_144
    assert fcntl.fcntl(rank.err, F_GETPIPE_SZ) == 262_144
    assert spawn.group.reap(rank) == 0


POOR = """
import fcntl, os
from dsup.edges import group
from dsup.edges.heartbeats import Page
page = Page(0, 1)
os.setuid(50_000 + os.getpid() % 10_000)  # root has no limit of pipe pages
pipes = []
while True:
    pipes.append(os.pipe())
    try:
        fcntl.fcntl(pipes[-1][0], 1031, 1 << 20)
    except PermissionError:
        break
start = group.Start(["echo", "heard"], os.environ)
for rank in group.WorkerGroup().spawn([start], page.fd):
    print(fcntl.fcntl(rank.out, 1032) < 262_144, os.read(rank.out, 99).decode())
"""


@pytest.mark.root
def test_a_user_without_pipe_pages_gets_smaller_pipes():
    """The limit of pipe pages stops no rank."""
    done = subprocess.run(
        [sys.executable, "-c", POOR], capture_output=True, check=True, text=True
    )

    assert done.stdout.split() == ["True", "heard"]


REFUSED = {
    "missing": ("no-such-program", 127, "no such file or directory"),
    "missing path": ("{tmp}/missing", 127, "no such file or directory"),
    "not executable": ("{tmp}/data", 126, "permission denied"),
    "a directory": ("{tmp}", 126, "permission denied"),
    "not a program": ("{tmp}/junk", 126, "exec format error"),
    "a missing interpreter": ("{tmp}/script", 127, "no such file or directory"),
    "below a file": ("{tmp}/data/x", 126, "not a directory"),
    "a NUL": ("a\0b", 126, "invalid argument"),
}


@pytest.mark.parametrize("refusal", REFUSED.values(), ids=REFUSED)
def test_a_program_that_cannot_run_is_refused_as_a_shell_would(
    spawn, tmp_path, descriptors, refusal
):
    """127 if it is not there, 126 if it cannot be executed, and the reason."""
    for name, content, mode in [
        ("data", b"", 0o644),
        ("junk", b"\x7fjunk", 0o755),
        ("script", b"#!/no/such/interpreter\n", 0o755),
    ]:
        (tmp_path / name).write_bytes(content)
        (tmp_path / name).chmod(mode)
    program, code, why = refusal
    program = program.format(tmp=tmp_path)
    before = descriptors()

    with pytest.raises(SpawnError) as refused:
        spawn([program])

    assert refused.value.exit_code == code
    assert str(refused.value).startswith(f"cannot start {program}, because {why} (")
    assert descriptors() == before
    assert list(spawn.group.pids) == []


def test_arguments_that_are_too_long_are_refused(spawn):
    """The kernel's limit is named."""
    with pytest.raises(SpawnError, match="argument list too long") as refused:
        spawn(["true", *["x" * 100_000] * 100])

    assert refused.value.exit_code == 126


CROWDED = """
import os, resource, signal
from dsup.edges import group
from dsup.edges.heartbeats import Page
page = Page(0, 8)
os.setuid(50_000 + os.getpid() % 10_000)  # root has no limit of processes
resource.setrlimit(resource.RLIMIT_NPROC, (4, 4))
workers, started = group.WorkerGroup(), []
before = len(os.listdir("/proc/self/fd"))
try:
    start = group.Start(["sleep", "600"], os.environ)
    for rank in workers.spawn([start] * 8, page.fd):
        started.append(rank)
except BlockingIOError:
    held = len(os.listdir("/proc/self/fd")) - before
    print(len(started), len(workers.pids), held == 4 * len(started))
for rank in started:
    os.kill(rank.pid, signal.SIGKILL)
"""


SHORT = """
import os, resource
from dsup.edges import group
from dsup_runtime import contract
start = group.Start(["true"], {**os.environ, contract.STACKS: "fd:5"})
workers, soft = group.WorkerGroup(), 80
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, soft))

def taken():
    "Take every descriptor there is."
    held = []
    try:
        while True:
            held.append(os.dup(0))
    except OSError:
        return held

for free in range(12):
    held = taken()
    for _ in range(free):
        os.close(held.pop())
    try:
        [rank] = workers.spawn([start], -1)
    except OSError:
        left = len(taken())
        print("refused", free - left)
    else:
        kept = rank.pidfd, rank.out, rank.err, rank.notes, rank.stacks
        print("started", free - len(taken()) - sum(fd >= 0 for fd in kept))
    for fd in range(3, soft):
        try:
            os.close(fd)
        except OSError:
            pass
"""


def test_a_rank_for_which_descriptors_do_not_suffice_leaves_none_open():
    """Whichever of its pipes, sockets and files is the one that cannot be made."""
    made = subprocess.run(
        [sys.executable, "-c", SHORT], capture_output=True, check=True, text=True
    )
    lines = made.stdout.splitlines()

    assert {"refused 0", "started 0"} == set(lines), made.stdout
    assert lines == sorted(lines)


@pytest.mark.root
def test_a_limit_of_processes_is_told_apart_from_a_bad_program():
    """It is no SpawnError: another node may have room; the ranks so far run."""
    done = subprocess.run(
        [sys.executable, "-c", CROWDED], capture_output=True, check=True, text=True
    )

    assert done.stdout.split() == ["3", "3", "True"]


def test_ranks_are_seen_to_end_in_the_order_of_their_deaths(spawn):
    """However long the loop looked elsewhere: 20 times in a row."""
    for deaths in islice(permutations(range(4)), 20):
        ranks, loop, order = spawn(SLEEP, [ENVIRONMENT] * 4), Loop(), list[int]()
        for rank in ranks:
            loop.watch(rank.pidfd, partial(order.append, rank.rank))
        for number in deaths:
            os.kill(ranks[number].pid, signal.SIGKILL)
            wait_until_dead(ranks[number])
        loop.turn(time.monotonic() + 600)

        assert tuple(order) == deaths
        assert {spawn.group.reap(rank) for rank in ranks} == {-signal.SIGKILL}


@pytest.mark.parametrize(
    ("line", "status"),
    [
        pytest.param("exit 0", 0, id="success"),
        pytest.param("exit 3", 3, id="an exit code"),
        pytest.param("exit 255", 255, id="the highest exit code"),
        pytest.param("exit 137", 137, id="a code that looks like a signal"),
        pytest.param("kill -KILL $$", -9, id="a signal"),
        pytest.param("ulimit -c 0; kill -ABRT $$", -6, id="one that dumps core"),
    ],
)
def test_a_rank_is_collected_with_its_status(spawn, descriptors, line, status):
    """Its exit code, or minus its signal; afterwards nothing is held but its pipes."""
    before = len(descriptors())
    (rank,) = spawn(["sh", "-c", line])
    wait_until_dead(rank)

    assert spawn.group.reap(rank) == status
    assert list(spawn.group.pids) == []
    assert len(descriptors()) == before + 3


def test_sigterm_wakes_a_frozen_rank(spawn):
    """A stopped process would not see the request to end before SIGCONT."""
    line = "trap 'echo ending; exit 5' TERM; echo ready; while :; do sleep 0.01; done"
    (rank,) = spawn(["sh", "-c", line])
    assert line_of(rank.out) == "ready\n"
    os.kill(rank.pid, signal.SIGSTOP)
    os.waitid(os.P_PID, rank.pid, os.WSTOPPED)
    spawn.group.signal([0], signal.SIGTERM)
    wait_until_dead(rank)

    assert line_of(rank.out) == "ending\n"
    assert spawn.group.reap(rank) == 5


def test_a_signal_reaches_the_named_ranks_alone(spawn):
    """Ranks that have ended, or never were, are passed over."""
    first, second, third = spawn(SLEEP, [ENVIRONMENT] * 3)
    os.kill(third.pid, signal.SIGKILL)
    wait_until_dead(third)
    spawn.group.signal([0, 2, 9], signal.SIGTERM)
    wait_until_dead(first)

    assert spawn.group.reap(first) == -signal.SIGTERM
    assert spawn.group.reap(third) == -signal.SIGKILL
    spawn.group.signal([0, 2], signal.SIGTERM)
    assert proc.is_alive(second.pid)


def test_a_signal_is_passed_on_only_to_ranks_that_handle_it(spawn):
    """To the others it would be deadly, or nothing; they are named."""
    ranks = spawn(
        ["sh", "-c", "eval $TRAP; echo ready; while :; do sleep 0.01; done"],
        [
            ENVIRONMENT | {"TRAP": trap}
            for trap in (":", "trap 'echo heard' USR1", "trap '' USR1", ":")
        ],
    )
    assert [line_of(rank.out) for rank in ranks] == ["ready\n"] * 4

    assert spawn.group.pass_on([0, 1, 2, 7], signal.SIGUSR1) == [0, 2]
    assert line_of(ranks[1].out) == "heard\n"
    assert all(proc.is_alive(rank.pid) for rank in ranks)


def test_a_rank_that_is_being_taken_down_is_seen_before_it_is_collected(spawn):
    """At the first death the agent asks which others were already on their way."""
    ranks = spawn(SLEEP, [ENVIRONMENT] * 3)
    before = spawn.group.dying()
    os.kill(ranks[1].pid, signal.SIGKILL)
    wait_until_dead(ranks[1])
    after = spawn.group.dying()
    spawn.group.reap(ranks[1])

    assert (before, after, spawn.group.dying()) == ((), (1,), ())


HELPERS = """
import os, subprocess, sys
from dsup.edges import group
from dsup.linux import proc, tree
spared = subprocess.Popen(["sleep", "600"])
line = "echo x; exec sleep 600"
helpers = [
    subprocess.Popen(["sh", "-c", line], stdout=subprocess.PIPE)
    for _ in range(int(sys.argv[1]))
]
for helper in helpers:
    helper.stdout.readline()
    while proc.stat(helper.pid).comm != "sleep":
        os.sched_yield()
names, total = group.helpers_left([spared.pid], [spared.pid])
ours = set(names) <= {f"sleep ({helper.pid})" for helper in helpers}
group.terminate_helpers([spared.pid])
codes = {helper.wait(600) for helper in helpers}
print(len(names), total, ours, codes, spared.poll())
tree.kill()
"""


@pytest.mark.parametrize(
    ("number", "said"),
    [
        pytest.param(0, "0 0 True set() None", id="none"),
        pytest.param(2, "2 2 True {-15} None", id="two"),
        pytest.param(12, "8 12 True {-15} None", id="more than are named"),
    ],
)
def test_helpers_are_named_and_asked_to_end(number, said):
    """At most eight by name, all of them counted; a spared child is not among them."""
    done = subprocess.run(
        [sys.executable, "-c", HELPERS, str(number)],
        capture_output=True,
        check=True,
        text=True,
    )

    assert done.stdout.strip() == said
