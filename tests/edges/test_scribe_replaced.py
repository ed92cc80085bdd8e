"""The scribe's own death, silence and end: nothing is lost that need not be."""

import json
import os
import re
import select
import signal
import subprocess
import sys
import time

import pytest

from dsup.core import events as ev
from dsup.core import journal

LIMIT_S = 600
LINES = "i=0; while [ $i -lt {count} ]; do echo rank {rank} line $i; i=$((i+1)); done"


def ended(pid):
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    assert select.select([fd], [], [], LIMIT_S)[0], f"process {pid} lives on"
    os.close(fd)


@pytest.mark.slow
def test_a_killed_scribe_is_replaced_unnoticed(scribe_agent):
    """After kill -9 no rank sees EPIPE, and no journal line is lost or unmarked."""
    a = scribe_agent(local_world_size=2)
    for rank in range(2):
        a.rank(LINES.format(rank=rank, count=20000) + "; echo done", local_rank=rank)
    a.start()
    for turn in range(3):
        a.shown(until=b"line %d\n" % (turn * 4000 + 2000))
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
        wanted = "".join(f"rank {rank} line {i}0\n" for i in range(20000))
        missing = len(wanted) + len("done\n") - len(log)
        assert log.endswith(b"done\n")
        assert 0 <= missing <= 3 * 256 * 1024


@pytest.mark.slow
def test_a_stopped_scribe_is_replaced(scribe_agent, eventually):
    """A scribe that answers nothing for 5 s is killed; nothing in the pipes is lost."""
    a = scribe_agent()
    pid = a.start()
    a.order("journal", '{"n": 1}')
    eventually(lambda: a.journal() == ['{"n": 1}'])
    a.order("kill_scribe", signal.SIGSTOP)
    a.rank("echo unread", attempt=1)
    a.order("journal", '{"n": 2}')
    a.order("hurry", 10)

    assert a.wait_for("scribe_lost") == [pid, -signal.SIGKILL]
    a.order("hurry", 1)
    assert a.wait_for("pid")[0] != pid
    a.rank_exited("1/0")
    assert a.end()
    assert a.log(attempt=1) == b"unread\n"
    assert a.journal() == ['{"n": 1}', '{"n": 2}']


@pytest.mark.slow
def test_a_flood_into_a_stopped_scribe_does_not_wait(scribe_agent):
    """Before the scribe is given up, pipes are given room, and the loss is told."""
    a = scribe_agent()
    pid = a.start()
    a.order("prepare", 1)
    a.wait_for("prepared")
    a.order("kill_scribe", signal.SIGSTOP)
    a.rank("i=0; while [ $i -lt 20000 ]; do echo line $i; i=$((i+1)); done")
    assert a.rank_exited() == 0
    os.kill(pid, signal.SIGCONT)
    a.shown(until=b"could be written\n")

    assert a.end()
    assert a.log().endswith(b"line 19999\n")
    (told,) = re.findall(rb"dsup: ([\d,]+) bytes", a.shown())
    wanted = sum(len(f"line {i}\n") for i in range(20000))
    assert len(a.log()) + int(told.replace(b",", b"")) == wanted


@pytest.mark.slow
def test_an_idle_scribe_is_missed_too(scribe_agent):
    """A stopped scribe is found although the agent has nothing to say."""
    a = scribe_agent(speed=10)
    a.start()
    a.order("kill_scribe", signal.SIGSTOP)

    assert a.wait_for("scribe_lost")[1] == -signal.SIGKILL


@pytest.mark.slow
def test_scribes_that_die_at_once_are_given_up_and_no_rank_waits(scribe_agent):
    """After 5 replacements within a minute output is thrown away, then tried again."""
    a = scribe_agent()
    a.start()
    pids = []
    for _ in range(6):
        a.order("kill_scribe", signal.SIGKILL)
        a.wait_for("scribe_lost")
        pids += a.wait_for("pid")
    assert pids[-1] is None
    a.rank("head -c 3000000 /dev/zero; echo done")
    a.rank_exited()
    a.order("pass", 61)
    fifo = a.run_dir / "fifo"
    os.mkfifo(fifo)
    a.rank(f"read -r x < {fifo}; echo late", attempt=1)
    shown = a.shown(until=b"could be written\n")
    fifo.write_text("go\n")
    a.rank_exited("1/0")

    assert a.end()
    assert a.log(attempt=1) == b"late\n"
    assert shown == (
        b"dsup: 3,000,005 bytes of the ranks' output and 0 messages of dsup's own "
        b"are lost, because nothing could be written\n"
    )


@pytest.mark.slow
def test_the_scribe_outlives_its_agent_for_the_last_words(scribe_agent):
    """When the agent is killed, the scribe reads until the writers are gone."""
    a = scribe_agent()
    fifo = a.run_dir / "fifo"
    os.mkfifo(fifo)
    a.rank(f"read -r x < {fifo}; echo last words")
    scribe = a.start()
    a.order("die")
    a.process.wait()
    fifo.write_text("go\n")
    ended(scribe)

    assert a.log() == b"last words\n"


def test_the_journal_of_a_killed_agent_ends_with_when_that_was(
    scribe_agent, eventually
):
    """Its last own line may be of long before, and of another scribe."""
    a = scribe_agent()
    scribe = a.start()
    told = journal.encode(7, ev.Tick("tick", 1.0))
    a.order("journal", told)
    eventually(lambda: a.journal() == [told])
    a.order("kill_scribe", signal.SIGKILL)
    assert a.wait_for("scribe_lost")[0] == scribe
    (scribe,) = a.wait_for("pid")
    before_s = time.monotonic()
    a.order("die")
    a.process.wait()
    ended(scribe)

    first, last = map(journal.decode, a.journal())
    assert (first.n, last.n) == (7, 8)
    assert before_s <= last.event.at_s <= time.monotonic()


def test_a_page_and_what_was_appended_outlive_the_agent(scribe_agent, eventually):
    """Both are on disk while the run goes on; the page as it was when the agent died.

    A scribe that takes over from a killed one has the page as well.
    """
    a = scribe_agent()
    place = a.run_dir / "attempt_0"
    kept, samples = place / "heartbeats", place / "samples.jsonl"
    a.order("page", 0, "step 1  ")
    scribe = a.start()
    eventually(lambda: kept.exists() and kept.read_bytes()[:8] == b"step 1  ")
    a.order("append_text", "attempt_0/samples.jsonl", "one\n")
    a.order("append_text", "attempt_0/samples.jsonl", "two\n")
    eventually(lambda: samples.exists() and samples.read_text() == "one\ntwo\n")
    a.order("kill_scribe", signal.SIGKILL)
    assert a.wait_for("scribe_lost")[0] == scribe
    (scribe,) = a.wait_for("pid")
    before_ns = time.monotonic_ns()
    a.order("write", "step 2  ")
    a.order("die")
    a.process.wait()
    ended(scribe)

    page, made = kept.read_bytes()[:-8], kept.read_bytes()[-8:]
    assert page == b"step 2  "
    assert before_ns <= int.from_bytes(made, "little") <= time.monotonic_ns()


def test_a_page_is_copied_as_its_ranks_go_on(scribe_agent, eventually):
    """Whoever kills scribe and agent at once takes the last seconds, and no more."""
    a = scribe_agent(speed=50)
    kept = a.run_dir / "attempt_0" / "heartbeats"
    a.start()
    a.order("hurry", 1)  # the agent alone: it would not wait long for an answer
    a.order("page", 0, "step 1  ")
    eventually(kept.exists)
    a.order("write", "step 2  ")
    eventually(lambda: kept.read_bytes()[:8] == b"step 2  ")
    a.order("close_streams", 0)
    assert a.end()
    assert kept.read_bytes()[:8] == b"step 2  "


@pytest.mark.slow
def test_the_last_words_come_whatever_was_spent(scribe_agent):
    """A run that ends while no scribe may be started yet gets one more for its end."""
    a = scribe_agent()
    a.start()
    pids = []
    for _ in range(6):
        a.order("kill_scribe", signal.SIGKILL)
        a.wait_for("scribe_lost")
        pids += a.wait_for("pid")
    assert pids[-1] is None
    a.order("say", "dsup: the verdict")
    a.order("journal", '{"n": 1}')

    assert a.end()
    assert a.wait_for("unsaid") == [[]]
    assert b"dsup: the verdict\n" in a.shown()
    assert a.journal() == ['{"n": 1}']


def test_a_terminals_signals_do_not_end_it(scribe_agent):
    """Ctrl-C, Ctrl-Z and what else the whole foreground gets is not for the scribe."""
    a = scribe_agent()
    pid = a.start()
    names = ("INT", "TERM", "HUP", "QUIT", "TSTP", "TTOU", "TTIN", "USR1", "USR2")
    for name in names:
        os.kill(pid, getattr(signal, f"SIG{name}"))
    a.order("say", "dsup: still here")

    assert a.end()
    assert a.shown() == b"dsup: still here\n"


def test_a_bug_ends_it_with_one_line_and_70(tmp_path):
    """An unexpected exception never reaches the agent's code it was forked from."""
    code = """if True:
        import socket, sys, time
        from dsup.edges.scribe import held, process, protocol
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        theirs.setblocking(False)
        ours.send(b"[1, 0, 0, 0, 0]")
        settings = protocol.Settings(sys.argv[1], 1)
        process.run(settings, theirs, held.Held(), time.monotonic)
    """
    ended = subprocess.run(
        [sys.executable, "-c", code, tmp_path], capture_output=True, check=False
    )

    assert ended.returncode == 70
    assert ended.stderr == b"dsup: scribe: ValueError: unknown message 0\n"


@pytest.mark.slow
def test_a_scribe_that_hangs_at_the_end_is_left(scribe_agent):
    """The agent's own end waits for no disk: 10 s, and what was unsaid is known."""
    a = scribe_agent()
    a.start()
    for _ in range(5):
        a.order("kill_scribe", signal.SIGKILL)
        a.wait_for("scribe_lost")
        a.wait_for("pid")
    a.order("kill_scribe", signal.SIGSTOP)
    a.order("say", "dsup: the verdict")
    a.order("end")
    a.order("hurry", 20)

    assert a.wait_for("scribe_ended") == [False]
    assert a.wait_for("unsaid") == [["dsup: the verdict"]]
