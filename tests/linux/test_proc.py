"""Facts from /proc, whatever a process calls itself and whenever it goes."""

import os
import select
import signal
import subprocess
import sys
import threading

import pytest

from dsup.linux import proc

MISSING = 2**22 + 1
"""More than the kernel's highest possible pid."""


@pytest.fixture
def child():
    """Start a Python that runs a script, which says when it is ready."""
    started = []

    def start(script):
        command = [sys.executable, "-c", script]
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE))
        assert started[-1].stdout.readline() == b"\n"
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def shell():
    """Start a shell that runs a line, says so, and lives until its stdin ends."""
    started = []

    def start(line):
        process = subprocess.Popen(
            ["sh", "-c", f"{line}\necho ready; read end"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        started.append(process)
        assert process.stdout.readline() == b"ready\n"
        return process.pid

    yield start
    for process in started:
        process.kill()
        process.communicate()


COMMS = {
    "a space": "a b",
    "brackets": "a) R (b",
    "only opening": "(((",
    "only closing": ")))",
    "numbers": "1 2 3",
    "looks like a stat": ") Z 1 1 1 0 -1",
    "not ASCII": "grün",
    "quotes and tabs": "a\t'\"b",
}


@pytest.mark.parametrize("comm", COMMS.values(), ids=COMMS.keys())
def test_a_name_cannot_mislead(shell, asleep, tmp_path, comm):
    """A process may call itself anything; its state and parent are still right."""
    (tmp_path / "comm").write_text(comm)
    pid = shell(f"read -r name <'{tmp_path}/comm'; printf %s \"$name\" >/proc/$$/comm")
    asleep(pid)

    found = proc.stat(pid)

    assert found.comm == comm
    assert found.state == "S"
    assert found.ppid == os.getpid()


def test_a_name_that_is_no_text_is_still_a_name(shell):
    """Bytes that are not UTF-8 do not end the supervisor."""
    pid = shell(r"printf '\377\376x' >/proc/$$/comm")

    assert proc.stat(pid).comm == "\ufffd\ufffdx"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        pytest.param("trap : USR1", True, id="a handler"),
        pytest.param("trap : USR2", False, id="a handler for another"),
        pytest.param("trap '' USR1", False, id="ignored"),
        pytest.param(":", False, id="default"),
    ],
)
def test_catches_means_a_handler(shell, line, expected):
    """Only a handler catches a signal; ignoring is not catching."""
    assert proc.catches(shell(line), signal.SIGUSR1) is expected


def test_the_first_and_the_last_signal_are_told_apart(shell):
    """The bit of a signal is its number less one."""
    pid = shell("trap : HUP RTMAX")

    caught = [number for number in range(1, 65) if proc.catches(pid, number)]

    assert {signal.SIGHUP, signal.SIGRTMAX} <= set(caught)
    assert signal.SIGUSR1 not in caught


def test_the_dead_are_dying_until_they_are_collected(shell):
    """What has ended but is not reaped counts as dying and not as alive."""
    pid = shell(":")
    before = proc.is_dying(pid), proc.is_alive(pid)
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)

    assert before == (False, True)
    assert (proc.is_dying(pid), proc.is_alive(pid)) == (True, False)


@pytest.mark.parametrize(
    ("line", "status"),
    [
        pytest.param("exit 0", 0, id="success"),
        pytest.param("exit 3", 3, id="an exit code"),
        pytest.param("kill -KILL $$", -signal.SIGKILL, id="a signal"),
    ],
)
def test_the_status_of_the_dead_can_be_read_before_it_is_collected(line, status):
    """A debugger may collect a child first, and its parent need not wait for that."""
    with subprocess.Popen(["sh", "-c", line]) as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)

        found = proc.wait_status(process.pid)

    assert os.waitstatus_to_exitcode(found) == status


@pytest.mark.root
def test_proc_of_another_pid_namespace_is_not_ours():
    """There the numbers that are ours are somebody else's."""
    code = "from dsup.linux import proc; print(proc.is_own())"
    inside = ["unshare", "--pid", "--fork", sys.executable, "-c", code]
    found = subprocess.run(inside, capture_output=True, check=True, text=True)

    assert found.stdout == "False\n"
    assert proc.is_own()


def test_what_is_missing_is_absent():
    """No process, no fact, and no error."""
    assert proc.stat(MISSING) is None
    assert proc.children(MISSING) == []
    assert proc.descendants(MISSING) == []
    assert not proc.is_alive(MISSING)
    assert not proc.is_dying(MISSING)
    assert not proc.catches(MISSING, signal.SIGTERM)
    assert proc.read_text(f"/proc/{MISSING}/stat") == ""


@pytest.mark.parametrize("path", ["/proc/self", "/proc/self/mem"])
def test_what_cannot_be_read_is_empty(path):
    """A directory, or a file that refuses to be read."""
    assert proc.read_text(path) == ""


def test_a_process_that_goes_while_it_is_read_is_absent():
    """A file of /proc that was opened before its process went gives an error."""
    child = subprocess.Popen(["sleep", "600"])
    with open(f"/proc/{child.pid}/stat", "rb") as stat:
        child.kill()
        child.wait()
        with pytest.raises(ProcessLookupError):
            stat.read()

    assert proc.stat(child.pid) is None


def test_children_of_every_thread_are_found():
    """A child belongs to the thread that forked it, and threads are many."""
    children, started, end = [], threading.Event(), threading.Event()

    def fork():
        children.append(subprocess.Popen(["sleep", "600"]))
        started.set()
        end.wait(600)

    thread = threading.Thread(target=fork)
    thread.start()
    assert started.wait(600)
    found = proc.children(os.getpid())
    end.set()
    thread.join()
    children[0].kill()
    children[0].wait()

    assert children[0].pid in found


def test_descendants_come_parents_first_and_branches_can_be_left_out(shell):
    """A spared child hides all that is below it."""
    pid = shell("sh -c 'sleep 600 & echo $!; wait' | { read x; echo; exec cat; } &")
    found = []
    for _ in range(6000):
        found = proc.descendants(pid)
        if len(found) == 3:
            break
        select.select([], [], [], 0.01)
    parents = {child: proc.stat(child).ppid for child in found}
    grandchild = next(child for child in found if parents[child] != pid)
    middle = parents[grandchild]
    without = proc.descendants(pid, without=[middle])
    for child in found:
        os.kill(child, signal.SIGKILL)

    assert found.index(middle) < found.index(grandchild)
    assert set(found) - set(without) == {middle, grandchild}


def test_a_process_is_told_from_a_later_one(shell):
    """Start times grow, and one process has the same at every look."""
    first = proc.stat(shell(":"))
    second_pid = shell("sleep 0.02")
    second = proc.stat(second_pid)

    assert 0 < first.start <= second.start
    assert proc.stat(second_pid).start == second.start


def test_a_session_is_that_of_its_leader():
    """Whoever leads a session passes its own pid on to its children."""
    line = "sh -c 'echo $$; read end'"
    with subprocess.Popen(
        ["sh", "-c", f"{line}; exit"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        child = int(process.stdout.readline())

        assert proc.stat(child).session == process.pid


def test_where_a_sleeper_sleeps(shell):
    """The kernel function is named; of what does not sleep there is none."""
    pid = shell(":")
    for _ in range(6000):
        if proc.wchan(pid):
            break
        select.select([], [], [], 0.01)

    assert "pipe" in proc.wchan(pid)
    assert proc.wchan(os.getpid()) == ""
    assert proc.wchan(MISSING) == ""


def test_thread_ids_are_those_of_all_threads(shell):
    """Each thread has an id; a process without any more than the main one has one."""
    end = threading.Event()
    thread = threading.Thread(target=end.wait, args=(600,))
    thread.start()
    found = proc.thread_ids(os.getpid())
    native = thread.native_id
    end.set()
    thread.join()
    pid = shell(":")

    assert {os.getpid(), native} <= set(found)
    assert proc.thread_ids(pid) == [pid]
    assert proc.thread_ids(MISSING) == []


def test_main_children_are_those_of_the_main_thread(shell):
    """A quick look sees what the main thread forked."""
    pid = shell("sleep 600 & :")
    found = proc.main_children(pid)
    os.kill(found[0], signal.SIGKILL)

    assert found == proc.children(pid)
    assert proc.main_children(MISSING) == []


@pytest.mark.root
def test_another_pid_namespace_is_not_the_first():
    """There pids are not those that the kernel prints."""
    code = "from dsup.linux import proc; print(proc.in_initial_namespace())"
    inside = ["unshare", "--pid", "--fork", "--mount-proc", sys.executable, "-c", code]
    found = subprocess.run(inside, capture_output=True, check=True, text=True)

    assert found.stdout == "False\n"


def test_the_first_pid_namespace_is_where_the_kernels_threads_are():
    """Only there kthreadd is to be seen, as pid 2."""
    found = proc.stat(2)
    first = found is not None and found.comm == "kthreadd"

    assert proc.in_initial_namespace() is first


def test_a_signal_that_still_waits_is_not_sent_again(child):
    """It would be answered twice, later."""
    process = child(
        "import signal, time\n"
        "signal.signal(39, lambda *_: None)\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, {39})\n"
        "print(flush=True); time.sleep(600)"
    )
    assert proc.takes(process.pid, 39)
    assert not proc.takes(process.pid, 40)

    os.kill(process.pid, 39)

    assert not proc.takes(process.pid, 39)
    assert not proc.takes(1 << 30, 39)


def test_a_file_is_known_again_at_a_descriptor():
    """By what it is, not by its name."""
    ours, other = os.memfd_create("same"), os.memfd_create("same")

    assert proc.holds(os.getpid(), ours, os.fstat(ours))
    assert not proc.holds(os.getpid(), other, os.fstat(ours))
    os.close(ours)
    assert not proc.holds(os.getpid(), ours, os.fstat(other))
    os.close(other)


def until_asleep(pid):
    """Wait until a process sleeps in the kernel; return where."""
    for _ in range(6000):
        if place := proc.wchan(pid):
            return place
        select.select([], [], [], 0.01)
    return pytest.fail("it does not sleep")


@pytest.mark.skipif(not os.path.exists("/proc/self/stack"), reason="no such file")
@pytest.mark.root
def test_where_in_the_kernel_a_process_sleeps_is_read(shell):
    """Root may see it, the innermost function first, where the kernel tells it."""
    pid = shell(":")
    place = until_asleep(pid)

    assert any(place in line for line in proc.kernel_stack(pid))


def test_the_system_call_that_a_process_is_in_is_read(shell):
    """Its number comes first."""
    pid = shell(":")
    until_asleep(pid)

    assert proc.system_call(pid).split()[0].isdigit()
    assert proc.system_call(MISSING) == ""
    assert proc.kernel_stack(MISSING) == []
