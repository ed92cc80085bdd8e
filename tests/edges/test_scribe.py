"""The scribe as a process: what ranks write reaches its places, whole."""

import errno
import os
import pty
import select
import subprocess

import pytest

LIMIT_S = 600
LINES = "i=0; while [ $i -lt {count} ]; do echo rank {rank} line $i; i=$((i+1)); done"


def test_streams_journal_and_console_reach_their_places(scribe_agent):
    """Output goes to log and console as it is, the journal to its file, exit 0."""
    a = scribe_agent()
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
def test_lines_of_four_ranks_arrive_whole(scribe_agent):
    """4 ranks print 2000 lines each at once: none is damaged or lost."""
    a = scribe_agent(local_world_size=4)
    for rank in range(4):
        a.rank(LINES.format(rank=rank, count=2000), local_rank=rank)
    a.start()
    for rank in range(4):
        a.rank_exited(f"0/{rank}")
    assert a.end()

    lines = a.shown().decode().splitlines()
    assert sorted(lines) == sorted(
        f"rank {rank} line {i}" for rank in range(4) for i in range(2000)
    )


def test_last_words_come_before_the_comment_on_them(scribe_agent):
    """What a SIGKILLed rank wrote is shown before what dsup says of its death."""
    a = scribe_agent()
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


def test_a_helper_that_floods_does_not_hold_the_end(scribe_agent):
    """A kept helper writes on: the scribe takes what is there, and ends."""
    a = scribe_agent()
    a.rank("yes & echo done")
    a.start()
    a.rank_exited()

    assert a.end()
    assert b"done\n" in a.log()


def test_an_unfinished_line_is_not_joined_to_anothers(scribe_agent):
    """A last word without newline stays raw, and dsup's line begins on its own."""
    a = scribe_agent()
    a.rank("printf 'Segmentation fau'; kill -9 $$")
    a.start()
    a.rank_exited()
    a.order("say", "dsup: rank 0 died")
    assert a.end()

    assert a.shown() == b"Segmentation fau\ndsup: rank 0 died\n"


@pytest.mark.slow
def test_a_stopped_terminal_costs_lines_and_no_time(scribe_agent, eventually):
    """A terminal that takes nothing: the rank ends, its log is complete."""
    master, terminal = pty.openpty()
    a = scribe_agent(out=terminal, err=terminal)
    os.close(terminal)
    a.rank(f"yes {'x' * 79} | head -n 100000")
    a.start()
    a.rank_exited()
    eventually(lambda: len(a.log()) == 80 * 100_000)
    a.order("prepare", 1)
    a.wait_for("prepared")  # the console has had the last block, too
    assert a.log() == (b"x" * 79 + b"\n") * 100_000

    shown = b""
    while b"dsup: " not in shown or not shown.endswith(b"\n"):
        assert select.select([master], [], [], LIMIT_S)[0]
        shown += os.read(master, 1 << 16)
    assert a.end()
    os.close(master)
    *lines, last = shown.decode().split("\r\n")[:-1]
    assert set(lines) == {"x" * 79}
    dropped = 100_000 - len(lines)
    assert last == (
        f"dsup: {dropped:,} lines not shown: "
        "the terminal did not take them (they are in the log)"
    )


def test_a_reader_that_leaves_is_not_missed(scribe_agent):
    """`| head -1`: the rank goes on, its log is complete, the journal goes on."""
    reader, console = os.pipe()
    a = scribe_agent(out=console)
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
def test_a_closed_descriptor_is_no_trouble(scribe_agent, closed, shown):
    """Started with a closed stdout or stderr, all goes on without it."""
    a = scribe_agent(closed=closed)
    a.rank("echo out; echo err >&2")
    a.start()
    a.rank_exited()
    a.order("say", "dsup: over")

    assert a.end()
    assert a.log() == b"out\n"
    assert a.log("stderr.log") == b"err\n"
    assert a.shown() == shown


def test_a_file_shared_by_both_descriptors_keeps_its_offset(scribe_agent, tmp_path):
    """`>file 2>&1`: nothing is overwritten, neither before nor behind."""
    path = tmp_path / "console"
    path.write_text("begun by the shell\n")
    with path.open("r+b") as file:
        file.seek(0, os.SEEK_END)
        a = scribe_agent(out=file.fileno(), err=file.fileno())
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


def test_preparing_is_answered(scribe_agent):
    """An attempt's directories are made, one a rank; a failure is told, in words."""
    a = scribe_agent(local_world_size=3)
    a.start()
    a.order("prepare", 1)
    assert a.wait_for("prepared") == [1, None]
    assert sorted(os.listdir(a.run_dir / "attempt_1")) == ["0", "1", "2"]

    (a.run_dir / "attempt_2").write_text("in the way")
    a.order("prepare", 2)
    assert a.wait_for("prepared") == [2, os.strerror(errno.ENOTDIR).lower()]
    assert a.end()


def test_later_attempts_are_handed_over_and_let_go(scribe_agent):
    """Descriptors of an ended attempt are closed, and nothing is lost."""
    a = scribe_agent()
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


def test_no_logs_where_none_are_wanted(scribe_agent):
    """--log-dir /dev/null: the console and the journal only."""
    a = scribe_agent(rank_logs=False)
    a.rank("echo out")
    a.start()
    a.rank_exited()
    a.order("journal", '{"n": 1}')
    assert a.end()

    assert a.shown() == b"out\n"
    assert a.journal() == ['{"n": 1}']
    assert os.listdir(a.run_dir / "attempt_0" / "0") == []


@pytest.mark.parametrize(
    ("keep", "expected"), [pytest.param(True, "old", id="keep"), (False, "new")]
)
def test_a_file_that_is_there_may_be_kept(scribe_agent, keep, expected):
    """What a rank wrote itself stays if so ordered; nothing half-written is left."""
    a = scribe_agent()
    (a.run_dir / "there").write_text("old")
    a.start()
    a.order("save_text", "there", "new", keep)
    a.order("save_text", "fresh", "new", keep)
    assert a.end()

    assert (a.run_dir / "there").read_text() == expected
    assert (a.run_dir / "fresh").read_text() == "new"
    assert list(a.run_dir.glob("*.part")) == []


def test_what_cannot_be_saved_is_said(scribe_agent):
    """A copy that fails is one line on the console, and nothing else fails."""
    a = scribe_agent()
    a.start()
    a.order("save_text", "no/such/directory", "page")
    a.order("journal", '{"n": 1}')
    assert a.end()

    assert a.shown() == (
        b"dsup: cannot write no/such/directory, because no such file or directory\n"
    )
    assert a.journal() == ['{"n": 1}']


@pytest.mark.root
@pytest.mark.slow
def test_a_full_disk_fails_no_print(scribe_agent, tmp_path):
    """On a full disk ranks run on, the journal is whole, and the user is told once."""
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-osize=3m", "tmpfs", disk], check=True)
    try:
        a = scribe_agent(run_dir=disk)
        a.rank("head -c 8000000 /dev/zero | tr '\\0' 'x' || echo failed; echo done")
        a.start()
        assert a.rank_exited() == 0
        a.order("journal_lines", 1, 100, 1000)
        assert a.end()

        assert len(a.journal()) == 100
        assert a.shown().count(b"dsup: cannot write attempt_0/0/stdout.log") == 1
        assert b"xdone\n" in a.shown()
        assert a.log().endswith(b"xdone\n")
    finally:
        subprocess.run(["umount", disk], check=True)
