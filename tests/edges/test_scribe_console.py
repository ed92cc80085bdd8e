"""The console: whole lines, bounded, never waited for, given up when nobody reads."""

import contextlib
import os
import pty
import socket
import time

import pytest

from dsup.edges.scribe.console import LIMIT_BYTES, Console
from dsup.edges.scribe.sink import Sink

A, B = "rank 0", "rank 1"
LINE = b"x" * 99 + b"\n"


class Pipe:
    """A pipe with a console at one end and the test at the other."""

    def __init__(self, *, in_log=True):
        self.reader, self.writer = os.pipe()
        os.set_blocking(self.reader, False)
        self.console = Console(Sink(self.writer), time.monotonic, in_log=in_log)
        self.seen = b""

    def take(self):
        """Read and flush until nothing is left."""
        while True:
            try:
                self.seen += os.read(self.reader, 1 << 20)
            except BlockingIOError:
                if not self.console.backlog:
                    return self.seen
            self.console.flush()

    def close(self):
        """Close both ends."""
        for fd in (self.reader, self.writer, self.console.sink.fd):
            os.close(fd)


@pytest.fixture
def pipe():
    one = Pipe()
    yield one
    one.close()


def test_a_reader_that_stops_loses_whole_lines_and_is_told(pipe):
    """What does not fit is dropped by the line; one line says how many, in place."""
    for _ in range(200):
        pipe.console.add(A, LINE * 100)
    assert pipe.console.backlog <= LIMIT_BYTES
    seen = pipe.take().splitlines(keepends=True)
    pipe.console.add(A, b"afterwards\n")
    *_, told, last = pipe.take().splitlines()

    assert set(seen[:-1]) == {LINE}
    dropped = 20_000 - len(seen[:-1])
    assert (
        told
        == (
            f"dsup: {dropped:,} lines not shown: "
            "the reader did not take them (they are in the log)"
        ).encode()
    )
    assert last == b"afterwards"


def test_without_logs_none_are_promised():
    """With --log-dir /dev/null dropped lines are nowhere, and nothing else is said."""
    pipe = Pipe(in_log=False)
    for _ in range(200):
        pipe.console.add(A, LINE * 100)

    assert pipe.take().endswith(b"the reader did not take them\n")
    pipe.close()


def test_a_stopped_reader_is_waited_for_once(pipe):
    """Full memory costs a fiftieth of a second, not one for each of 6,000 blocks."""
    started = time.monotonic()
    for _ in range(6000):
        pipe.console.add(A, LINE * 100)

    assert time.monotonic() - started < 60


def test_dsups_own_lines_are_kept_when_others_are_dropped(pipe):
    """The verdict must be there when the terminal goes on."""
    for _ in range(200):
        pipe.console.add(A, LINE * 100)
    pipe.console.say(b"dsup: rank 3 was killed")

    assert b"\ndsup: rank 3 was killed\n" in pipe.take()


@pytest.mark.parametrize(
    ("blocks", "shown"),
    [
        pytest.param([(A, b"a"), (A, b"b\n")], b"ab\n", id="its own rest follows on"),
        pytest.param([(A, b"a"), (B, b"b\n")], b"a\nb\n", id="another's does not"),
        pytest.param([(A, b"a\n"), (B, b"b")], b"a\nb", id="a raw end stays raw"),
    ],
)
def test_pieces_of_a_line(pipe, blocks, shown):
    """A line too long for memory comes in pieces that nothing gets between."""
    for owner, block in blocks:
        pipe.console.add(owner, block)

    assert pipe.take() == shown


def test_a_line_that_lost_its_beginning_is_not_shown(pipe):
    """After a dropped piece the rest of that line is dropped too."""
    for _ in range(200):
        pipe.console.add(B, LINE * 100)
    pipe.console.add(A, b"beginning, ")
    pipe.take()
    pipe.console.add(A, b"the rest\nnext\n")

    assert pipe.take().endswith(b"not take them (they are in the log)\nnext\n")
    assert b"rest" not in pipe.seen


def test_a_reader_that_has_gone_is_given_up(pipe):
    """EPIPE ends this console silently, and frees its memory."""
    sink = pipe.console.sink
    for _ in range(20):
        pipe.console.add(A, LINE * 100)
    os.close(pipe.reader)
    pipe.console.add(A, LINE)
    pipe.console.say(b"nobody hears")

    assert pipe.console.backlog == 0
    assert pipe.console.sink is None
    pipe.reader, pipe.console.sink = os.open("/dev/null", os.O_RDONLY), sink


def test_the_end_waits_for_a_reader_that_moves_and_not_for_one_that_does_not(pipe):
    """Finishing lasts as long as nothing moved, and no longer."""
    pipe.console.add(A, LINE * 5000)
    started = time.monotonic()
    pipe.console.finish(0.05, 600.0)

    assert 0.04 < time.monotonic() - started < 300
    assert pipe.console.backlog > 0
    assert len(pipe.take()) == 500_000


def test_no_descriptor_no_console():
    """A console on a closed descriptor takes everything and keeps nothing."""
    console = Console(None, time.monotonic, in_log=True)
    console.add(A, LINE)
    console.say(b"dsup: nobody")
    console.finish(1.0, 1.0)

    assert console.backlog == 0


def fill(sink):
    while sink.write(LINE * 100):
        pass


def open_pipe():
    return os.pipe()


def open_terminal():
    return pty.openpty()


def open_socket():
    reader, writer = socket.socketpair()
    return reader.detach(), writer.detach()


@pytest.mark.parametrize("opened", [open_pipe, open_terminal, open_socket])
def test_a_sink_never_blocks_and_leaves_the_description_alone(opened):
    """A full pipe, terminal or socket says so; the shell's description stays."""
    reader, writer = opened()
    sink = Sink(writer)
    with pytest.raises(BlockingIOError):
        fill(sink)
    while sink.wait(0.05):  # a terminal passes on by and by what it has taken
        with contextlib.suppress(BlockingIOError):
            fill(sink)

    assert not sink.wait(0)
    assert os.get_blocking(writer)
    assert os.read(reader, 99).strip(b"\r\n") == b"x" * 99
    for fd in {reader, writer, sink.fd}:
        os.close(fd)


@pytest.mark.root
def test_what_cannot_be_opened_again_is_polled():
    """After `su`, another user's pipe is written in pieces that poll says will fit."""
    reader, writer = os.pipe()
    os.seteuid(65534)
    try:
        sink = Sink(writer)
    finally:
        os.seteuid(0)
    assert sink.fd == writer
    assert sink.write(LINE * 100) == 4096
    with pytest.raises(BlockingIOError):
        fill(sink)

    assert os.read(reader, 4096) == (LINE * 100)[:4096]
    os.close(reader)
    os.close(writer)


def test_a_descriptor_for_reading_is_no_console():
    """What took the number of a closed stdout by chance is not written to."""
    reader, writer = os.pipe()
    with pytest.raises(OSError, match="Bad file descriptor"):
        Sink(reader)
    os.close(reader)
    os.close(writer)
