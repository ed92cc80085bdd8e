"""Where a rank's output goes: every route, through a real scribe."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios

import pytest

LIMIT_S = 600
SIZE = 1 << 26
PEAK_MAX_KIB = 40 * 1024
STAMP = rb"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z "


def route(console="raw", *, file=True, **more):
    return {"file": file, "console": console, **more}


def test_each_rank_goes_where_it_is_sent(scribe_agent):
    """Raw, prefixed, to the file only, to the console only, nowhere."""
    ranks = [
        route(),
        route("prefixed", prefix="[default1]:"),
        route("none"),
        route(file=False),
        route("none", file=False),
    ]
    a = scribe_agent(local_world_size=5, output={"ranks": ranks})
    for rank in range(5):
        a.rank(f"echo out {rank}; echo err {rank} >&2", local_rank=rank)
    a.start()
    for rank in range(5):
        a.rank_exited(f"0/{rank}")
    assert a.end()

    assert sorted(a.shown().splitlines()) == [
        *(b"[default1]:err 1", b"[default1]:out 1"),
        *(b"err 0", b"err 3", b"out 0", b"out 3"),
    ]
    for rank in (0, 1, 2):
        assert a.log(local_rank=rank) == b"out %d\n" % rank
        assert a.log("stderr.log", local_rank=rank) == b"err %d\n" % rank
    for rank in (3, 4):
        assert os.listdir(a.run_dir / "attempt_0" / str(rank)) == []


def test_matching_lines_are_copied_for_each_attempt(scribe_agent):
    """filtered_stdout.log and filtered_stderr.log hold what was asked for."""
    filters = ["loss", "Error"]
    ranks = [route("prefixed", prefix=f"[r{n}]:", filters=filters) for n in (0, 1)]
    a = scribe_agent(local_world_size=2, output={"ranks": ranks})
    a.start()
    for attempt in (0, 1):
        for rank in (0, 1):
            words = "echo loss $0; echo nothing; echo Error >&2; printf 'loss, cut'"
            a.rank(words, attempt=attempt, local_rank=rank)
            a.rank_exited(f"{attempt}/{rank}")
        a.order("close_streams", attempt)
    assert a.end()

    for attempt in (0, 1):
        directory = a.run_dir / f"attempt_{attempt}"
        out = (directory / "filtered_stdout.log").read_text().splitlines()
        assert sorted(out) == [
            *("[r0]:loss /bin/sh", "[r0]:loss, cut"),
            *("[r1]:loss /bin/sh", "[r1]:loss, cut"),
        ]
        err = (directory / "filtered_stderr.log").read_text().splitlines()
        assert sorted(err) == ["[r0]:Error", "[r1]:Error"]


def test_dev_null_keeps_no_file_of_any_kind(scribe_agent):
    """--log-dir /dev/null: no logs, no index, no filtered lines."""
    ranks = [route("prefixed", prefix="[0]:", filters=["loss"])]
    a = scribe_agent(rank_logs=False, output={"ranks": ranks})
    a.rank("echo loss")
    a.start()
    a.rank_exited()
    assert a.end()

    assert a.shown() == b"[0]:loss\n"
    assert os.listdir(a.run_dir / "attempt_0") == ["0"]
    assert os.listdir(a.run_dir / "attempt_0" / "0") == []


def test_times_on_console_and_in_files(scribe_agent):
    """Asked for, each line begins with its time in both places."""
    ranks = [route("prefixed", prefix="[0]:")]
    a = scribe_agent(output={"ranks": ranks, "timestamps": True})
    a.rank("echo one; echo two")
    a.start()
    a.rank_exited()
    assert a.end()

    lines = rb"(?:" + STAMP + rb"%s\w+\n){2}"
    assert re.fullmatch(lines % rb"\[0\]:", a.shown())
    assert re.fullmatch(lines % b"", a.log())


@pytest.mark.slow
def test_a_question_is_seen_before_its_answer(scribe_agent):
    """An unfinished line shows while its rank waits."""
    a = scribe_agent()
    a.start()
    pid = a.rank("printf 'Name? '; sleep 60 & wait")
    assert a.shown(until=b"Name? ") == b"Name? "
    os.kill(pid, signal.SIGKILL)
    a.rank_exited()
    assert a.end()


def test_bytes_are_exact_in_the_file_and_harmless_on_the_console(scribe_agent):
    """Escapes, bad bytes and controls: spelled out here, kept there."""
    a = scribe_agent()
    a.rank(r"printf '\033[2J\033]0;x\007\377\t\n'")
    a.start()
    a.rank_exited()
    assert a.end()

    assert a.log() == b"\x1b[2J\x1b]0;x\x07\xff\t\n"
    assert a.shown() == b"\\x1b[2J\\x1b]0;x\\x07\\xff\t\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        pytest.param("tr '\\0' y < /dev/zero", id="one line"),
        pytest.param("cat /dev/urandom", id="binary"),
        pytest.param("yes 1234567 | tr '\\n' '\\r'", id="bar"),
    ],
)
def test_any_flood_in_bounded_memory(scribe_agent, tmp_path, command):
    """64 MB without a newline, of data, or of a bar: every byte, under 40 MiB."""
    shown = (tmp_path / "console").open("wb")
    output = {"ranks": [route("prefixed", prefix="[0]:")]}
    a = scribe_agent(out=shown.fileno(), output=output)
    pid = a.start()
    a.rank(f"{command} | head -c {SIZE} | tee {a.run_dir}/copy; echo; echo end")
    a.rank_exited()
    a.order("prepare", 1)
    a.wait_for("prepared")
    with open(f"/proc/{pid}/status") as status:
        peak_kib = next(int(line.split()[1]) for line in status if "VmHWM" in line)
    assert a.end()

    copy = (a.run_dir / "copy").read_bytes()
    assert len(copy) == SIZE
    assert a.log() == copy + b"\nend\n"
    assert (tmp_path / "console").read_bytes().endswith(b"\n[0]:end\n")
    shown.close()
    assert peak_kib < PEAK_MAX_KIB


def test_last_words_can_be_asked_for(scribe_agent):
    """The last 64 KiB of each stream, though no file is kept and all has ended."""
    a = scribe_agent(local_world_size=2, rank_logs=False)
    a.rank("yes 1234567 | head -n 100000; echo last; echo err >&2")
    a.rank("printf other", local_rank=1)
    a.start()
    a.rank_exited("0/0")
    a.rank_exited("0/1")
    a.order("close_streams", 0)
    a.order("tails", 0)
    _, tails = a.wait_for("tails")
    assert [tail[:2] for tail in tails] == [[0, 0], [0, 1], [1, 0], [1, 1]]
    (out, err, other, none) = (tail[2] for tail in tails)
    assert len(out) == 64 * 1024
    assert out.endswith("1234567\nlast\n")
    assert (err, other, none) == ("err\n", "other", "")

    assert a.end()


def test_last_words_are_those_of_the_attempt_at_hand(scribe_agent):
    """What an earlier attempt said is forgotten; asking costs no descriptor."""
    a = scribe_agent(rank_logs=False)
    a.start()
    for attempt in (0, 1):
        a.rank(f"echo words {attempt}", attempt=attempt)
        a.rank_exited(f"{attempt}/0")
    a.order("fds")
    (before,) = a.wait_for("fds")
    for attempt, told in ((0, []), (1, [[0, 0, "words 1\n"], [0, 1, ""]])):
        a.order("tails", attempt)
        assert a.wait_for("tails") == [attempt, told]
    a.order("fds")
    assert a.wait_for("fds") == [before]
    assert a.end()


def test_a_large_log_is_rotated(scribe_agent):
    """--log-max-size: one older file stays."""
    a = scribe_agent(output={"ranks": [], "max_bytes": 100_000})
    a.rank("i=0; while [ $i -lt 20000 ]; do echo line $i; i=$((i+1)); done")
    a.start()
    a.rank_exited()
    assert a.end()

    rest = a.log("stdout.log.1") + a.log()
    assert len(a.log()) <= 100_000
    assert rest.splitlines() == a.shown().splitlines()[-rest.count(b"\n") :]


def test_old_runs_go_and_those_that_live_stay(scribe_agent, tmp_path, eventually):
    """--keep-runs: the scribe removes what is old, never beside a living scribe."""
    names = [f"2025010{n}T000000Z-train-abcdef_node" for n in range(1, 4)]
    for run in names:
        (tmp_path / run).mkdir()
        (tmp_path / run / "run.json").write_text('{"schema": "dsup.run/1"}')
    (tmp_path / names[1] / "events.jsonl").write_text("")
    living = scribe_agent(run_dir=tmp_path / names[0])
    living.start()
    living.order("prepare", 1)
    living.wait_for("prepared")
    a = scribe_agent(run_dir=tmp_path / names[2], output={"ranks": [], "keep_runs": 1})
    a.start()
    eventually(lambda: not (tmp_path / names[1]).exists())
    assert a.end()
    assert living.end()

    assert (tmp_path / names[0] / "run.json").exists()


class Terminal:
    """A terminal of some width, which a test reads."""

    def __init__(self, columns=60):
        self.master, self.slave = pty.openpty()
        size = struct.pack("HHHH", 24, columns, 0, 0)
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, size)
        self.seen = b""

    def read(self, until):
        """Read up to some text; return all so far."""
        while until not in self.seen:
            assert select.select([self.master], [], [], LIMIT_S)[0], self.seen
            self.seen += os.read(self.master, 1 << 16)
        return self.seen


@pytest.mark.slow
def test_the_status_line_of_a_terminal(scribe_agent):
    """Drawn below, wiped for lines, gone at the end."""
    terminal = Terminal()
    output = {"ranks": [], "status": True, "colour": True}
    a = scribe_agent(out=terminal.slave, err=terminal.slave, output=output)
    a.start()
    a.order("status", "dsup: step 1")
    terminal.read(b"dsup: step 1")
    a.order("say", "dsup: rank 0 died", "failure")
    shown = terminal.read(b"rank 0 died\x1b[0m\r\n")
    assert b"\r\x1b[K\x1b[1;31mdsup: rank 0 died" in shown
    a.order("status", "dsup: step 2")
    terminal.read(b"dsup: step 2")
    assert a.end()
    os.close(terminal.slave)
    assert terminal.read(b"step 2\x1b[0m\r\x1b[K").endswith(b"\r\x1b[K")
    os.close(terminal.master)


@pytest.mark.parametrize("piped", ["both", "stdout"])
def test_no_status_line_in_a_pipe(scribe_agent, piped):
    """Where another program's lines may come between, nothing is redrawn."""
    terminal = Terminal()
    err = None if piped == "both" else terminal.slave
    a = scribe_agent(err=err, output={"ranks": [], "status": True})
    a.start()
    a.order("status", "dsup: step 1")
    a.order("say", "dsup: over")
    assert a.end()
    if piped == "both":
        assert a.shown() == b"dsup: over\n"
    else:
        assert terminal.read(b"over\r\n") == b"dsup: over\r\n"
    os.close(terminal.slave)
    os.close(terminal.master)


@pytest.mark.slow
@pytest.mark.parametrize("trouble", ["terminal", "reader", "killed", "stopped"])
def test_no_rank_waits(scribe_agent, trouble):
    """Whatever happens to console or scribe, a rank's prints wait for neither."""
    terminal, (reader, console) = Terminal(), os.pipe()
    out = console if trouble == "reader" else terminal.slave
    a = scribe_agent(out=out, err=out)
    pid = a.start()
    if trouble in {"killed", "stopped"}:
        os.kill(pid, signal.SIGKILL if trouble == "killed" else signal.SIGSTOP)
    a.rank("head -c 60000 /dev/zero | tr '\\0' x; echo done")
    assert a.rank_exited() == 0
    if trouble == "stopped":
        os.kill(pid, signal.SIGCONT)
    a.order("journal", '{"n": 1}')
    assert a.end()
    assert a.log().endswith(b"xdone\n")
    for fd in (terminal.master, terminal.slave, reader, console):
        os.close(fd)
