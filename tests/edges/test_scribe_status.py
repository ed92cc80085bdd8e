"""The status line: below all others, redrawn once a second, gone in the end."""

import fcntl
import os
import pty
import select
import struct
import termios
import time

import pytest

from dsup.edges.scribe.console import Console
from dsup.edges.scribe.sink import Sink
from dsup.edges.scribe.status import StatusLine

LIMIT_S = 600


class Terminal:
    """A terminal with a console and its status line, and a clock a test moves."""

    def __init__(self, columns):
        self.master, terminal = pty.openpty()
        size = struct.pack("HHHH", 24, columns, 0, 0)
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, size)
        os.set_blocking(self.master, False)
        self.terminal, self.now_s = terminal, 100.0
        self.sink = Sink(terminal)
        self.console = Console(self.sink, self.now, in_log=True)
        self.line = StatusLine(self.console, self.now, colour=False)

    def now(self):
        """Return the test's time."""
        return self.now_s

    def turn(self, seconds=0.0):
        """Let time pass, as the scribe's loop does."""
        self.now_s += seconds
        self.line.plan()
        if self.now_s >= self.line.due_s:
            self.line.tick()
        self.line.plan()

    def shows(self, wanted):
        """Return whether just this has been shown since; terminals take a moment."""
        seen = b""
        while select.select([self.master], [], [], LIMIT_S if seen != wanted else 0)[0]:
            seen += os.read(self.master, 1 << 16)
            if not wanted.startswith(seen):
                break
        return seen == wanted

    def close(self):
        """Close both ends."""
        for fd in (self.master, self.terminal, self.sink.fd):
            os.close(fd)


@pytest.fixture
def terminal():
    one = Terminal(40)
    yield one
    one.close()


def test_it_is_drawn_once_a_second_and_when_it_changes(terminal):
    """Nothing moves that tells nothing new."""
    terminal.line.set("step 1")
    terminal.turn()
    assert terminal.shows(b"\r\x1b[Kstep 1")
    terminal.line.set("step 2")
    terminal.turn(0.5)
    assert terminal.shows(b"")
    terminal.turn(0.5)
    assert terminal.shows(b"\r\x1b[Kstep 2")
    terminal.line.set("step 2")
    terminal.turn(5.0)
    assert terminal.shows(b"")
    assert terminal.line.due_s == float("inf")


def test_lines_stand_above_it(terminal):
    """It is wiped before a line, and comes back when it is quiet."""
    terminal.line.set("step 1")
    terminal.turn()
    assert terminal.shows(b"\r\x1b[Kstep 1")
    terminal.console.add("rank 0", b"hello\n")
    assert terminal.shows(b"\r\x1b[Khello\r\n")
    terminal.console.say(b"dsup: hello")
    assert terminal.shows(b"dsup: hello\r\n")
    terminal.turn(0.1)
    assert terminal.shows(b"")
    terminal.turn(1.0)
    assert terminal.shows(b"\r\x1b[Kstep 1")


def test_a_question_is_left_alone(terminal):
    """Where a rank's line is unfinished, nothing is drawn over it."""
    terminal.line.set("step 1")
    terminal.console.add("rank 0", b"Name? ")
    terminal.turn(5.0)
    assert terminal.shows(b"Name? ")
    terminal.console.add("rank 0", b"Bob\n")
    terminal.turn(5.0)
    assert terminal.shows(b"Bob\r\n\r\x1b[Kstep 1")


def test_it_is_cut_to_the_terminal(terminal):
    """A line that wrapped could not be wiped."""
    terminal.line.set("x" * 100)
    terminal.turn()
    assert terminal.shows(b"\r\x1b[K" + b"x" * 39)


def test_it_leaves_nothing(terminal):
    """In the end the terminal is as if it had never been."""
    terminal.line.set("step 1")
    terminal.turn()
    assert terminal.shows(b"\r\x1b[Kstep 1")
    terminal.console.erase()
    assert terminal.shows(b"\r\x1b[K")
    terminal.console.erase()
    assert terminal.shows(b"")


def test_dsups_own_lines_have_the_colour_of_their_gravity(terminal):
    """Deaths are red, restarts yellow, the rest is quiet."""
    console = Console(terminal.sink, time.monotonic, in_log=True, colour=True)
    console.say(b"rank 0 died", "failure")
    console.say(b"restart", "warning")
    console.say(b"4 ranks")
    assert terminal.shows(
        b"\x1b[1;31mrank 0 died\x1b[0m\r\n"
        b"\x1b[33mrestart\x1b[0m\r\n"
        b"\x1b[2m4 ranks\x1b[0m\r\n"
    )
