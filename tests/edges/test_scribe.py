"""The scribe as a process: what ranks write is neither lost nor waited for."""

import errno
import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

DRIVER = Path(__file__).with_name("scribe_driver.py")
LIMIT_S = 15
LINES = """i=0; while [ $i -lt {count} ]; do echo "rank {rank} line $i of {count}"; i=$((i+1)); done"""


class Agent:
    """A driver process and its console, which the test reads."""

    def __init__(self, run_dir, *, out=None, err=None, speed=1, closed="", **settings):
        self.run_dir = run_dir
        (run_dir / "attempt_0" / "0").mkdir(parents=True, exist_ok=True)
        orders, self.orders = os.pipe()
        self.reports, reports = os.pipe()
        self.console, console = os.pipe()
        settings = {"run_dir": str(run_dir), "local_world_size": 1} | settings
        self.process = subprocess.Popen(
            ["/bin/sh", "-c", f'exec "$@" {closed}', "sh", sys.executable, DRIVER]
            + [str(orders), str(reports), str(speed), json.dumps(settings)],
            stdout=console if out is None else out,
            stderr=console if err is None else err,
            pass_fds=(orders, reports),
        )
        for fd in (orders, reports, console):
            os.close(fd)
        self.heard, self.seen, self.pending = [], b"", b""
        self.open = [self.reports, self.console]

    def order(self, name, *args):
        os.write(self.orders, json.dumps([name, *args]).encode() + b"\n")

    def _pump(self):
        """Take in what console and driver give; a reader of both, as a user's is."""
        ready = select.select(self.open, [], [], LIMIT_S)[0]
        assert ready, f"nothing came in {LIMIT_S} s; reports so far: {self.heard}"
        for fd in ready:
            data = os.read(fd, 1 << 20)
            if not data:
                self.open.remove(fd)
            elif fd == self.console:
                self.seen += data
            else:
                *lines, self.pending = (self.pending + data).split(b"\n")
                self.heard += [json.loads(line) for line in lines]

    def wait_for(self, kind, match=lambda report: True):
        while True:
            for report in self.heard:
                if report[0] == kind and match(report):
                    self.heard.remove(report)
                    return report[1:]
            assert self.reports in self.open, f"the driver ended: {self.heard}"
            self._pump()

    def rank(self, command, *, attempt=0, local_rank=0):
        directory = self.run_dir / f"attempt_{attempt}" / str(local_rank)
        directory.mkdir(parents=True, exist_ok=True)
        self.order("rank", attempt, local_rank, command)
        return self.wait_for("rank")[1]

    def start(self):
        self.order("start")
        return self.wait_for("pid")[0]

    def rank_exited(self, name="0/0"):
        return self.wait_for("exited", lambda report: report[1] == name)[1]

    def shown(self, until=None):
        """Read the console up to some text, or to its end."""
        while until not in self.seen if until else self.console in self.open:
            self._pump()
        return self.seen

    def end(self):
        self.order("end")
        (complete,) = self.wait_for("scribe_ended")
        return complete

    def log(self, name="stdout.log", attempt=0, local_rank=0):
        path = self.run_dir / f"attempt_{attempt}" / str(local_rank) / name
        return path.read_bytes()

    def journal(self):
        path = self.run_dir / "events.jsonl"
        return path.read_text().splitlines() if path.exists() else []


@pytest.fixture
def agent(tmp_path):
    started = []

    def start(**arguments):
        started.append(Agent(tmp_path, **arguments))
        return started[-1]

    yield start
    for one in started:
        one.process.kill()
        one.process.wait()
        for fd in (one.orders, one.reports, one.console):
            os.close(fd)


def eventually(holds):
    """Poll what has no descriptor to wait on (another process's file or state)."""
    until = time.monotonic() + LIMIT_S
    while not holds():
        assert time.monotonic() < until, "it did not become so"
        select.select([], [], [], 0.01)


def ended(pid):
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    assert select.select([fd], [], [], LIMIT_S)[0], f"process {pid} lives on"
    os.close(fd)


def test_streams_journal_and_console_reach_their_places(agent):
    """Output goes to log and console as it is, the journal to its file, exit 0."""
    a = agent()
    a.order("journal", '{"n": 1}')
    a.rank("echo out; echo err >&2; printf 'no newline'")
    a.start()
    a.rank_exited()
    a.order("save_text", "attempt_0/heartbeats", "page")
    a.order("say", "dsup: over")

    assert a.end()
    assert a.log() == b"out\nno newline"
    assert a.log("stderr.log") == b"err\n"
    assert a.journal() == ['{"n": 1}']
    assert (a.run_dir / "attempt_0" / "heartbeats").read_text() == "page"
    assert sorted(a.shown().splitlines()) == [
        b"dsup: over", b"err", b"no newline", b"out"
    ]  # fmt: skip
    assert not (a.run_dir / ".reserve").exists()
    assert (a.run_dir / "events.jsonl").stat().st_mode & 0o777 == 0o600


@pytest.mark.slow
def test_lines_of_four_ranks_arrive_whole(agent):
    """4 ranks print 2000 lines each at once: none is damaged or lost on the console."""
    a = agent(local_world_size=4)
    for rank in range(4):
        a.rank(LINES.format(rank=rank, count=2000), local_rank=rank)
    a.start()
    for rank in range(4):
        a.rank_exited(f"0/{rank}")
    assert a.end()

    lines = a.shown().decode().splitlines()
    assert sorted(lines) == sorted(
        f"rank {rank} line {i} of 2000" for rank in range(4) for i in range(2000)
    )


def test_last_words_come_before_the_comment_on_them(agent):
    """What a SIGKILLed rank wrote is shown before what dsup says of its death."""
    a = agent()
    a.start()
    for turn in range(20):
        a.rank(f"echo first {turn}; echo last words {turn}; kill -9 $$", attempt=turn)
        a.rank_exited(f"{turn}/0")
        a.order("say", f"dsup: rank 0 was killed {turn}")
    assert a.end()

    assert a.shown().decode().splitlines() == [
        text.format(turn)
        for turn in range(20)
        for text in ("first {}", "last words {}", "dsup: rank 0 was killed {}")
    ]


def test_an_unfinished_line_is_not_joined_to_anothers(agent):
    """A last word without newline stays raw, and dsup's line begins on its own."""
    a = agent()
    a.rank("printf 'Segmentation fau'; kill -9 $$")
    a.start()
    a.rank_exited()
    a.order("say", "dsup: rank 0 died")
    assert a.end()

    assert a.shown() == b"Segmentation fau\ndsup: rank 0 died\n"


@pytest.mark.slow
def test_a_killed_scribe_is_replaced_unnoticed(agent):
    """kill -9 of the scribe: no rank sees EPIPE, no journal line is lost or unmarked."""
    a = agent(local_world_size=2)
    for rank in range(2):
        a.rank(
            LINES.format(rank=rank, count=20000) + "; echo done", local_rank=rank
        )
    a.start()
    for turn in range(3):
        a.shown(until=b"line %d " % (turn * 4000 + 2000))
        a.order("journal_lines", turn * 200 + 1, 200, 500)
        a.order("kill_scribe", signal.SIGKILL)
        assert a.wait_for("scribe_lost")[1] == -signal.SIGKILL
    for rank in range(2):
        assert a.rank_exited(f"0/{rank}") == 0
    assert a.end()

    numbers = [json.loads(line)["n"] for line in a.journal()]
    assert list(dict.fromkeys(numbers)) == list(range(1, 601))
    for rank in range(2):
        log = a.log(local_rank=rank)
        wanted = "".join(f"rank {rank} line {i} of 20000\n" for i in range(20000))
        missing = len(wanted) + len("done\n") - len(log)
        assert log.endswith(b"done\n")
        assert 0 <= missing <= 3 * 256 * 1024


@pytest.mark.slow
def test_a_stopped_scribe_is_replaced(agent):
    """A scribe that answers nothing for 5 s is killed; nothing in the pipes is lost."""
    a = agent(speed=10)
    a.rank("read -r x < fifo; echo after")
    pid = a.start()
    a.order("journal", '{"n": 1}')
    eventually(lambda: a.journal() == ['{"n": 1}'])
    a.order("kill_scribe", signal.SIGSTOP)
    a.rank("echo unread", attempt=1)
    a.order("journal", '{"n": 2}')

    assert a.wait_for("scribe_lost") == [pid, -signal.SIGKILL]
    assert a.wait_for("pid")[0] != pid
    a.rank_exited("1/0")
    assert a.end()
    assert a.log(attempt=1) == b"unread\n"
    assert a.journal() == ['{"n": 1}', '{"n": 2}']


@pytest.mark.slow
def test_an_idle_scribe_is_missed_too(agent):
    """A stopped scribe is found although the agent has nothing to say."""
    a = agent(speed=10)
    a.start()
    a.order("kill_scribe", signal.SIGSTOP)

    assert a.wait_for("scribe_lost")[1] == -signal.SIGKILL


@pytest.mark.slow
def test_scribes_that_die_at_once_are_given_up_and_no_rank_waits(agent):
    """After 5 replacements within a minute output is thrown away, then tried again."""
    a = agent(speed=20)
    a.start()
    for _ in range(6):
        a.order("kill_scribe", signal.SIGKILL)
        a.wait_for("scribe_lost")
        (pid,) = a.wait_for("pid")
    assert pid is None
    a.rank("head -c 3000000 /dev/zero; echo done")
    a.rank_exited()
    a.order("rank", 1, 0, "echo later; sleep 4; echo late")
    (a.run_dir / "attempt_1" / "0").mkdir(parents=True)
    a.rank_exited("1/0")

    assert a.end()
    assert a.log(attempt=1).endswith(b"late\n")
    assert b"of the ranks' output and 0 messages of dsup's own are lost" in a.shown()


@pytest.mark.slow
def test_a_stopped_terminal_costs_lines_and_no_time(agent):
    """A terminal that takes nothing: the rank ends, its log is complete."""
    master, terminal = pty.openpty()
    a = agent(out=terminal, err=terminal)
    os.close(terminal)
    a.rank(f"yes {'x' * 79} | head -n 100000")
    a.start()
    a.rank_exited()
    a.order("journal", '{"n": 1}')
    eventually(lambda: a.journal())
    assert a.log() == (b"x" * 79 + b"\n") * 100_000

    a.order("end")
    shown = b""
    while b"dsup: " not in shown or not shown.endswith(b"\n"):
        assert select.select([master], [], [], LIMIT_S)[0]
        shown += os.read(master, 1 << 16)
    assert a.wait_for("scribe_ended") == [True]
    os.close(master)
    *lines, last = shown.decode().split("\r\n")[:-1]
    assert set(lines) == {"x" * 79}
    dropped = 100_000 - len(lines)
    assert last == (
        f"dsup: {dropped:,} lines not shown: "
        "the terminal did not take them (they are in the log)"
    )


def test_a_reader_that_leaves_is_not_missed(agent):
    """`| head -1`: the rank goes on, its log is complete, the journal goes on."""
    reader, console = os.pipe()
    a = agent(out=console)
    os.close(console)
    a.rank(LINES.format(rank=0, count=3000))
    a.start()
    assert os.read(reader, 10)
    os.close(reader)
    assert a.rank_exited() == 0
    a.order("journal", '{"n": 1}')

    assert a.end()
    assert a.log().count(b"\n") == 3000
    assert a.journal() == ['{"n": 1}']


@pytest.mark.parametrize(
    ("closed", "shown"),
    [
        pytest.param(">&-", b"err\ndsup: over\n", id="stdout"),
        pytest.param("2>&-", b"out\n", id="stderr"),
        pytest.param("<&- >&- 2>&-", b"", id="all three"),
    ],
)
def test_a_closed_descriptor_is_no_trouble(agent, closed, shown):
    """Started with a closed stdout or stderr, all goes on without it."""
    a = agent(closed=closed)
    a.rank("echo out; echo err >&2")
    a.start()
    a.rank_exited()
    a.order("say", "dsup: over")

    assert a.end()
    assert a.log() == b"out\n"
    assert a.log("stderr.log") == b"err\n"
    assert a.shown() == shown


def test_a_file_shared_by_both_descriptors_keeps_its_offset(agent, tmp_path):
    """`>file 2>&1`: nothing is overwritten, neither before nor behind."""
    path = tmp_path / "console"
    path.write_text("begun by the shell\n")
    with path.open("r+b") as file:
        file.seek(0, os.SEEK_END)
        a = agent(out=file.fileno(), err=file.fileno())
        a.rank("echo one; echo two >&2; echo three")
        a.start()
        a.rank_exited()
        a.order("say", "dsup: over")
        assert a.end()
        file.write(b"ended by the shell\n")

    lines = path.read_text().splitlines()
    assert lines[0] == "begun by the shell"
    assert sorted(lines[1:4]) == ["one", "three", "two"]
    assert lines[4:] == ["dsup: over", "ended by the shell"]


@pytest.mark.slow
def test_the_scribe_outlives_its_agent_for_the_last_words(agent):
    """When the agent is killed, the scribe reads until the writers are gone."""
    a = agent()
    a.rank("read -r x < fifo; echo last words")
    os.mkfifo(a.run_dir / "fifo")
    scribe = a.start()
    a.order("die")
    a.process.wait()
    (a.run_dir / "go").touch()
    ended(scribe)

    assert a.log() == b"last words\n"


def test_preparing_is_answered(agent):
    """An attempt's directories are made, one a rank; a failure is told, in words."""
    a = agent(local_world_size=3)
    a.start()
    a.order("prepare", 1)
    assert a.wait_for("prepared") == [1, None]
    assert sorted(os.listdir(a.run_dir / "attempt_1")) == ["0", "1", "2"]

    (a.run_dir / "attempt_2").write_text("in the way")
    a.order("prepare", 2)
    assert a.wait_for("prepared") == [2, os.strerror(errno.ENOTDIR).lower()]
    assert a.end()


def test_later_attempts_are_handed_over_and_let_go(agent):
    """Descriptors of an ended attempt are closed, on both sides, and nothing is lost."""
    a = agent()
    a.start()
    a.order("fds")
    (before,) = a.wait_for("fds")
    for attempt in range(5):
        a.rank("echo out; echo err >&2", attempt=attempt)
        a.rank_exited(f"{attempt}/0")
        a.order("close_streams", attempt)
        a.order("prepare", 9)
        a.wait_for("prepared")
        assert a.log(attempt=attempt) == b"out\n"
        assert a.log("stderr.log", attempt=attempt) == b"err\n"
    a.order("fds")
    (after,) = a.wait_for("fds")
    assert after == before
    assert a.end()


def test_no_logs_where_none_are_wanted(agent):
    """--log-dir /dev/null: the console and the journal only."""
    a = agent(rank_logs=False)
    a.rank("echo out")
    a.start()
    a.rank_exited()
    a.order("journal", '{"n": 1}')
    assert a.end()

    assert a.shown() == b"out\n"
    assert a.journal() == ['{"n": 1}']
    assert os.listdir(a.run_dir / "attempt_0" / "0") == []


def test_a_terminals_signals_do_not_end_it(agent):
    """Ctrl-C, Ctrl-Z and what else the whole foreground gets is not for the scribe."""
    a = agent()
    pid = a.start()
    names = ("INT", "TERM", "HUP", "QUIT", "TSTP", "TTOU", "TTIN", "USR1", "USR2")
    for name in names:
        os.kill(pid, getattr(signal, f"SIG{name}"))
    a.order("say", "dsup: still here")

    assert a.end()
    assert a.shown() == b"dsup: still here\n"
