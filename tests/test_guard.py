"""The guard: passes signals on, and nothing that was started outlives it."""

import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from textwrap import dedent, indent

import pytest

from dsup.linux import proc
from dsup.linux.guardian import Will

GUARD = """
import os, select, signal, subprocess, sys
import dsup.guard
from dsup.guard import guard
from dsup.linux import signals

if {patient}:
    dsup.guard._LAST_WORDS_S = 600.0

def say(*words):
    os.write(int(os.environ["SAY"]), (" ".join(map(str, words)) + "\\n").encode())

def start(*argv, **more):
    # A child that keeps the pipe to the test open for as long as it lives.
    return subprocess.Popen(argv, pass_fds=[int(os.environ["SAY"])], **more)

def agent(guardian):
{body}

code = guard(agent)
say("over")
os._exit(code)
"""


class Guarded:
    """A guard whose agent is a piece of Python, and what that says.

    A patient one gives the scribe more than its second for the last words.
    """

    def __init__(self, body, wrap=(), *, patient=False, **how):
        self.said, say = os.pipe()
        code = GUARD.format(body=indent(dedent(body), "    "), patient=patient)
        how = {"stdin": subprocess.DEVNULL, "stderr": subprocess.PIPE} | how
        self.process = subprocess.Popen(
            [*wrap, sys.executable, "-c", code],
            env=os.environ | {"SAY": str(say)},
            pass_fds=[say],
            text=True,
            **how,
        )
        os.close(say)
        self.pending = ""

    def line(self):
        """Return the next line that the agent, or one of its children, says."""
        while "\n" not in self.pending:
            assert select.select([self.said], [], [], 600)[0], "nothing was said"
            part = os.read(self.said, 4096).decode()
            assert part, "all have ended, and nothing was said"
            self.pending += part
        line, _, self.pending = self.pending.partition("\n")
        return line

    def rest(self):
        """Return what is still said, once everyone who could say more has gone."""
        end_s = time.monotonic() + 600
        while time.monotonic() < end_s:
            if select.select([self.said], [], [], 0.1)[0]:
                part = os.read(self.said, 4096).decode()
                if not part:
                    return self.pending
                self.pending += part
        pytest.fail(f"somebody still lives; said so far: {self.pending!r}")

    def close(self):
        """Leave nothing behind."""
        for pid in (*proc.descendants(self.process.pid), self.process.pid):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self.process.wait()
        if self.process.stderr:
            self.process.stderr.close()
        os.close(self.said)


@pytest.fixture
def guarded():
    """Start guards; none of them, nor of what they started, outlives the test."""
    started = []

    def start(*arguments, **more):
        started.append(Guarded(*arguments, **more))
        return started[-1]

    yield start
    for one in started:
        one.close()


def until(holds):
    """Wait for what no descriptor tells."""
    end_s = time.monotonic() + 600
    while not (value := holds()):
        assert time.monotonic() < end_s, "it did not become so"
        select.select([], [], [], 0.01)
    return value


@pytest.mark.parametrize("code", [0, 1, 2, 127, 143, 195])
def test_the_agents_exit_code_is_the_guards(guarded, code):
    """An agent that ended by itself has said all that there is to say."""
    guard = guarded(f"return {code}")

    assert guard.process.wait(600) == code
    assert guard.process.stderr.read() == ""
    assert guard.rest() == "over\n"


def test_what_an_agent_leaves_on_purpose_lives_on(guarded):
    """--keep-helpers: an agent that ended by itself has decided about its helpers."""
    guard = guarded(
        """
        say(start("sleep", "600").pid)
        return 0
        """
    )
    helper = int(guard.line())
    code = guard.process.wait(600)
    alive = proc.is_alive(helper)
    os.kill(helper, signal.SIGKILL)

    assert (code, alive) == (0, True)


BRANCHES = """
    start("sleep", "600")
    start("sleep", "600", start_new_session=True)
    start("env", "-i", "sleep", "600")
    start("sh", "-c", "sleep 600; true")
    start("sh", "-c", "setsid sleep 600 &").wait()
    line = "trap '' TERM INT HUP; echo ready; while :; do sleep 600; done"
    start("sh", "-c", line, stdout=subprocess.PIPE).stdout.readline()
    say("ready")
"""


@pytest.mark.parametrize(
    ("end", "code", "how"),
    [
        pytest.param("os.kill(os.getpid(), 9)", 137, "SIGKILL", id="SIGKILL"),
        pytest.param("os.kill(os.getpid(), 11)", 139, "SIGSEGV", id="SIGSEGV"),
        pytest.param("os.abort()", 134, "SIGABRT", id="SIGABRT"),
        pytest.param("return 70", 70, "exit code 70", id="a bug"),
        pytest.param("raise ValueError", 70, "exit code 70", id="an exception"),
        pytest.param("sys.exit(3)", 70, "exit code 70", id="an exit on the way"),
    ],
)
def test_a_lost_agent_takes_everything_with_it(guarded, end, code, how):
    """All that it started is killed, however detached, and the guard says so."""
    guard = guarded(BRANCHES + "    " + end)
    assert guard.line() == "ready"

    assert guard.process.wait(600) == code
    assert guard.rest() == "over\n"
    assert (
        guard.process.stderr.read()
        .splitlines()[-1]
        .startswith(f"dsup: the agent ended by {how}; nothing of the run is left ")
    )


def test_a_watchdog_that_gave_up_takes_everything_with_it(guarded):
    """A service manager's SIGABRT means that the agent hangs: all is killed."""
    guard = guarded(BRANCHES + "    os.kill(os.getpid(), signal.SIGSTOP)")
    assert guard.line() == "ready"

    guard.process.send_signal(signal.SIGABRT)

    assert guard.process.wait(600) == 134
    assert guard.rest() == "over\n"
    assert guard.process.stderr.read().startswith(
        "dsup: SIGABRT: the watchdog missed the agent's signs of life, "
    )


def test_the_scribe_may_finish_when_the_agent_is_stuck(guarded):
    """What the ranks said last is written down before the guard ends, too."""
    guard = guarded(
        """
        ended, alive = os.pipe()
        last_words = "read end; sleep 0.2; echo $0 >/proc/self/fd/$SAY"
        guardian.will.spared = start("sh", "-c", last_words, "scribe", stdin=ended).pid
        say("ready")
        os.kill(os.getpid(), signal.SIGSTOP)
        """,
        patient=True,
    )
    assert guard.line() == "ready"
    guard.process.send_signal(signal.SIGABRT)

    assert guard.process.wait(600) == 134
    assert guard.rest() == "scribe\nover\n"


def test_an_abort_below_the_guard_is_deadly_as_anywhere(guarded):
    """The watchdog's signal is the guard's alone: a rank that aborts dies of it."""
    guard = guarded(
        """
        say(start("sh", "-c", "kill -ABRT $$").wait())
        os.kill(os.getpid(), signal.SIGABRT)
        """
    )

    assert guard.line() == "-6"
    assert guard.process.wait(600) == 134


def test_the_killed_are_counted_once_each(guarded):
    """The number is that of processes, not of attempts to kill them."""
    guard = guarded(
        """
        for _ in range(4):
            start("sleep", "600")
        os.kill(os.getpid(), signal.SIGKILL)
        """
    )
    guard.process.wait(600)

    assert guard.process.stderr.read() == (
        "dsup: the agent ended by SIGKILL; nothing of the run is left "
        "(the guard killed 4)\n"
    )


def test_the_scribe_may_finish_when_the_agent_is_lost(guarded):
    """The one child that the agent named is given time for the ranks' last words."""
    guard = guarded(
        """
        ended, alive = os.pipe()
        last_words = "read end; sleep 0.2; echo $0 >/proc/self/fd/$SAY"
        scribe = start("sh", "-c", last_words, "scribe", stdin=ended)
        rank = start("sh", "-c", last_words, "rank", stdin=ended)
        guardian.will.spared = scribe.pid
        os.kill(os.getpid(), signal.SIGKILL)
        """,
        patient=True,
    )

    assert guard.process.wait(600) == 137
    assert guard.rest() == "scribe\nover\n"


@pytest.mark.slow
def test_a_scribe_that_does_not_finish_is_killed_in_time(guarded):
    """It has a second; then it goes the way of the others."""
    guard = guarded(
        """
        guardian.will.spared = start("sleep", "600").pid
        say("ready")
        os.kill(os.getpid(), signal.SIGKILL)
        """
    )
    guard.line()
    started_s = time.monotonic()
    guard.process.wait(600)

    assert time.monotonic() - started_s > 0.9
    assert guard.rest() == "over\n"


@pytest.mark.parametrize(
    ("end", "kept"),
    [
        pytest.param("os.kill(os.getpid(), signal.SIGKILL)", False, id="lost"),
        pytest.param("return 0", True, id="ended by itself"),
    ],
)
def test_the_temporary_directory_goes_with_a_lost_agent(guarded, tmp_path, end, kept):
    """Nobody else can remove it then; an agent that ended has decided about it."""
    tmp_dir = tmp_path / "dsup-1"
    (tmp_dir / "deep").mkdir(parents=True)
    (tmp_dir / "deep" / "file").touch()
    guard = guarded(
        f"""
        guardian.will.tmp_dir = {str(tmp_dir)!r}
        {end}
        """
    )
    guard.process.wait(600)

    assert tmp_dir.exists() == kept


@pytest.mark.parametrize(
    ("path", "kept"),
    [
        pytest.param("/tmp/dsup-1", "/tmp/dsup-1", id="as it is"),  # noqa: S108
        pytest.param("/größe/\udcff", "/größe/\udcff", id="any bytes"),
        pytest.param("/" + "x" * 4087, "/" + "x" * 4087, id="as long as there is room"),
        pytest.param("/" + "x" * 4088, "", id="too long, so not at all"),
        pytest.param("", "", id="none"),
    ],
)
def test_a_will_holds_a_path_whole_or_not_at_all(path, kept):
    """A path that is cut would be the path of something else."""
    will = Will()
    will.tmp_dir = "/a/longer/path/before"
    will.tmp_dir = path
    will.spared = 2**22
    will.cgroup = "/sys/fs/cgroup/x"

    assert (will.tmp_dir, will.spared) == (kept, 2**22)
    assert will.cgroup == "/sys/fs/cgroup/x"


LISTEN = """
    say("ready")
    while True:
        info = signal.sigwaitinfo(signals.watched())
        say(info.si_signo, info.si_pid == os.getppid())
        if info.si_signo == signal.SIGUSR2:
            return 5
"""


def test_signals_are_passed_on_to_the_agent(guarded):
    """Each of the six; and neither guard nor agent dies of any."""
    guard = guarded(LISTEN)
    assert guard.line() == "ready"
    for name in ("INT", "TERM", "HUP", "QUIT", "USR1", "USR2"):
        number = getattr(signal, f"SIG{name}")
        guard.process.send_signal(number)

        assert guard.line() == f"{int(number)} True"
    assert guard.process.wait(600) == 5


def test_a_hangup_that_was_ignored_is_not_passed_on(guarded):
    """Under nohup the run goes on when the terminal goes."""
    guard = guarded(LISTEN, wrap=["sh", "-c", "trap '' HUP; exec \"$@\"", "sh"])
    assert guard.line() == "ready"
    guard.process.send_signal(signal.SIGHUP)
    guard.process.send_signal(signal.SIGUSR1)

    assert guard.line() == f"{int(signal.SIGUSR1)} True"


def test_signals_that_came_before_the_agent_was_ready_are_not_lost(guarded):
    """They wait, blocked, from before the fork on."""
    guard = guarded(
        """
        os.kill(os.getppid(), signal.SIGTERM)
        say(signal.sigwaitinfo(signals.watched()).si_signo)
        return 0
        """
    )

    assert guard.line() == str(int(signal.SIGTERM))


def test_an_agent_sees_that_its_guard_has_gone(guarded):
    """The descriptor is readable then; there is no other sign."""
    guard = guarded(
        """
        poll = select.poll()
        poll.register(guardian.pidfd, select.POLLIN)
        say(poll.poll(0))
        say(len(poll.poll(60_000)))
        return 0
        """
    )
    assert guard.line() == "[]"
    guard.process.kill()

    assert guard.line() == "1"


def test_an_agents_child_that_stops_changes_nothing(guarded):
    """SIGCHLD tells of more than ends."""
    guard = guarded(
        """
        child = start("sleep", "600")
        os.kill(child.pid, signal.SIGSTOP)
        os.kill(os.getpid(), signal.SIGSTOP)
        say("continued")
        os.kill(child.pid, signal.SIGKILL)
        return 4
        """
    )
    (agent,) = until(lambda: proc.children(guard.process.pid))
    until(lambda: proc.stat(agent).state == "T")
    os.kill(agent, signal.SIGCONT)

    assert guard.line() == "continued"
    assert guard.process.wait(600) == 4


CLOSED = {"stdin": "<&-", "stdout": ">&-", "stderr": "2>&-", "all": "<&- >&- 2>&-"}


@pytest.mark.parametrize("closed", CLOSED.values(), ids=CLOSED.keys())
def test_a_missing_standard_descriptor_is_dev_null(guarded, closed):
    """Else a file of dsup's own would take its number, and get the user's output."""
    guard = guarded(
        """
        links = [os.readlink(f"/proc/self/fd/{fd}") for fd in (0, 1, 2)]
        say(*(link.rpartition("/")[2].partition(":")[0] for link in links))
        say(os.open("/", os.O_RDONLY) > 2, *map(os.get_inheritable, (0, 1, 2)))
        return 0
        """,
        wrap=["sh", "-c", f'exec "$@" {closed}', "sh"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    expected = {
        "<&-": "null pipe pipe",
        ">&-": "pipe null pipe",
        "2>&-": "pipe pipe null",
    }

    assert guard.line() == expected.get(closed, "null null null")
    assert guard.line() == "True True True True"
    guard.process.stdin.close()
    guard.process.stdout.close()


def test_a_console_that_takes_nothing_costs_no_time(guarded):
    """A stopped terminal does not keep a lost run alive."""
    unread, full = os.pipe()
    os.set_blocking(full, False)
    while True:
        try:
            os.write(full, b"x" * 65_536)
        except BlockingIOError:
            break
    os.set_blocking(full, True)
    guard = guarded("os.kill(os.getpid(), signal.SIGKILL)", stderr=full)
    code = guard.process.wait(600)
    os.close(unread)
    os.close(full)

    assert code == 137


INIT = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]


@pytest.mark.root
def test_as_pid_1_the_guard_collects_orphans(guarded):
    """In a container it is init: nobody else would, and zombies would pile up."""
    guard = guarded(LISTEN, wrap=INIT)
    assert guard.line() == "ready"
    (init,) = proc.children(guard.process.pid)
    (agent,) = proc.children(init)
    enter = ["nsenter", "--target", str(init), "--pid", "--mount"]
    line = "(sleep 0.1; true) & (sleep 600; true) & true"
    subprocess.run([*enter, "sh", "-c", line], check=True)
    until(lambda: len(proc.children(init)) == 2)
    (orphan,) = set(proc.children(init)) - {agent}

    assert proc.is_alive(orphan)
    assert Path(f"/proc/{init}/status").read_text().split("NSpid:")[1].split()[1] == "1"


@pytest.mark.root
def test_as_pid_1_the_guard_passes_signals_on(guarded):
    """A container's stop reaches the agent, though the kernel spares init most."""
    guard = guarded(LISTEN, wrap=INIT)
    assert guard.line() == "ready"
    (init,) = proc.children(guard.process.pid)
    for number in (signal.SIGTERM, signal.SIGUSR2):
        os.kill(init, number)

        assert guard.line() == f"{int(number)} True"
    assert guard.process.wait(600) == 5


@pytest.mark.root
def test_as_pid_1_the_guard_cleans_up(guarded):
    """The code and the end of all are the same as anywhere."""
    guard = guarded(BRANCHES + "    os.kill(os.getpid(), signal.SIGKILL)", wrap=INIT)

    assert guard.process.wait(600) == 137
    assert guard.rest().split() == ["ready", "over"]
