"""One stream on a console: whole lines, questions, progress bars."""

import os
import tracemalloc

import pytest

from dsup.edges.scribe.console import Console
from dsup.edges.scribe.stream import Outlets, Stream
from dsup.edges.scribe.tails import Tail
from dsup.edges.scribe.view import Look, View


class Screen:
    """A sink that takes all, and a clock that a test moves."""

    pollable, terminal, fd = True, False, -1

    def __init__(self):
        self.seen, self.now_s = b"", 100.0

    def write(self, data):
        """Take all there is."""
        self.seen += data
        return len(data)

    def now(self):
        """Return the test's time."""
        return self.now_s

    def take(self):
        """Return what has been shown since."""
        seen, self.seen = self.seen, b""
        return seen


class Rank:
    """A stream that is fed through a pipe, as the scribe's loop does it."""

    def __init__(self, screen, console, *, prefix=b"", colour=False, stamp=None):
        self.screen = screen
        self.view = View(console, Look(prefix, stamp, colour), screen.now)
        reader, self.writer = os.pipe()
        os.set_blocking(reader, False)
        self.stream = Stream(reader, 0, Outlets(Tail(), None, self.view, None))

    def write(self, *chunks):
        """Write chunks one by one; return what is shown of them."""
        for chunk in chunks:
            os.write(self.writer, chunk)
            self.stream.drain()
        return self.screen.take()

    def end(self):
        """End the stream; return what is shown then."""
        os.close(self.writer)
        self.stream.close()
        return self.screen.take()

    def wait(self, seconds):
        """Let time pass; return what is shown then."""
        self.screen.now_s += seconds
        if self.screen.now_s >= self.stream.due_s:
            self.stream.tick()
        return self.screen.take()


@pytest.fixture
def screen():
    return Screen()


@pytest.fixture
def console(screen):
    return Console(screen, screen.now, in_log=True)


@pytest.fixture
def new_rank(screen, console):
    ranks = []

    def new(**look):
        ranks.append(Rank(screen, console, **look))
        return ranks[-1]

    yield new
    for one in ranks:
        if one.stream.fd >= 0:
            one.end()


@pytest.fixture
def rank(new_rank):
    return new_rank(prefix=b"[0]:")


def test_lines_are_shown_when_they_are_whole(rank):
    """`abc`, flush, `def`: one line, one prefix."""
    assert rank.write(b"abc") == b""
    assert rank.write(b"def\nx\n") == b"[0]:abcdef\n[0]:x\n"


def test_a_question_is_shown_after_a_fifth_of_a_second(rank):
    """What is unfinished is shown, and goes on later in the same line."""
    rank.write(b"done\nName? ")
    assert rank.wait(0.1) == b""
    assert rank.wait(0.11) == b"[0]:Name? "
    assert rank.wait(10.0) == b""
    assert rank.write(b"Bob\nnext\n") == b"Bob\n[0]:next\n"


def test_dots_do_not_put_the_moment_off(rank):
    """A fifth of a second counts from the first byte that is not shown."""
    rank.write(b".")
    rank.wait(0.15)
    rank.write(b".")
    assert rank.wait(0.06) == b"[0]:.."
    rank.write(b".")
    assert rank.wait(0.21) == b"."


def test_an_interrupted_line_goes_on_behind_its_prefix(new_rank, rank):
    """Another's line in between begins on its own, and so does the rest."""
    other = new_rank(prefix=b"[1]:")
    rank.write(b"Load")
    rank.wait(0.2)
    assert other.write(b"hello\n") == b"\n[1]:hello\n"
    assert rank.write(b"ing\n") == b"[0]:ing\n"
    rank.write(b"Load")
    rank.wait(0.2)
    other.write(b"hello\n")
    assert rank.write(b"\nnext\n") == b"[0]:next\n"


def test_a_bar_is_shown_once_a_second_and_at_its_end(rank):
    """States between are left out, the last one never."""
    shown = b""
    for percent in range(101):
        shown += rank.write(b"\r%3d%%|##|" % percent) + rank.wait(0.1)
    assert 9 <= shown.count(b"\n") <= 11
    assert rank.write(b"\nnext\n") == b"[0]:100%|##|\n[0]:next\n"


def test_a_bar_that_rests_shows_its_last_state(rank):
    """However short its last movement, it is seen within a second."""
    rank.write(b"\r10%")
    rank.wait(0.2)
    rank.write(b"\r20%")
    assert rank.wait(1.0) == b"[0]:20%\n"
    assert rank.write(b"\n") == b""


def test_a_bar_that_is_wiped_leaves_nothing(rank):
    """A tqdm with leave=False ends in blanks."""
    rank.write(b"\r10%")
    rank.wait(0.2)
    rank.write(b"\r   \r")
    assert rank.wait(2.0) == b""


def test_a_question_may_become_a_bar(rank):
    """What was shown of a line stays; its next state is a line of its own."""
    rank.write(b"Loading")
    assert rank.wait(0.2) == b"[0]:Loading"
    rank.write(b"\rLoading 50%")
    assert rank.wait(1.0) == b"\n[0]:Loading 50%\n"
    assert rank.write(b"\rLoading 100%\n") == b"[0]:Loading 100%\n"


def test_an_endless_bar_takes_no_memory(rank):
    """Hours of carriage returns are one state."""
    tracemalloc.start()
    for n in range(2000):
        rank.write(b"\r%d" % n * 100)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 300_000  # 64 KiB of it are the stream's last words, twice
    assert rank.wait(1.0) == b"[0]:1999\n"


def test_the_end_shows_what_is_unfinished(rank):
    """Last words have no newline."""
    rank.write(b"Segmentation fau")
    assert rank.end() == b"[0]:Segmentation fau"


def test_the_end_shows_a_bars_last_state(rank):
    """A bar that is cut short is shown as it was."""
    rank.write(b"\r10%")
    rank.wait(0.2)
    rank.write(b"\r20%")
    assert rank.end() == b"[0]:20%"


def test_a_line_too_long_for_memory_has_one_prefix(rank):
    """It is shown in pieces that make one line."""
    seen = rank.write(*[b"x" * 50_000] * 10, b"\nend\n")
    assert seen == b"[0]:" + b"x" * 500_000 + b"\n[0]:end\n"


def test_no_character_is_torn_at_a_pieces_end(rank):
    """Pieces of a long line end with whole characters."""
    line = "漢".encode() * 100_000
    pieces = [line[at : at + 65_521] for at in range(0, len(line), 65_521)]
    assert rank.write(*pieces, b"\n") == b"[0]:" + line + b"\n"


def test_data_is_named_and_last_words_are_shown(rank):
    """A flood of data is one line, and does not hide the text after it."""
    seen = rank.write(b"\x00\xff" * 20_000 + b"\nTraceback\n")
    assert seen == b"[0]:(40001 bytes that are not text)\n[0]:Traceback\n"


def test_times_stand_before_the_prefix(new_rank):
    """Each line has its own time and its own rank."""
    rank = new_rank(prefix=b"[0]:", stamp=lambda: b"12:00Z ")
    assert rank.write(b"a\nb\n") == b"12:00Z [0]:a\n12:00Z [0]:b\n"


def test_raw_lines_have_no_lead(new_rank):
    """A raw console shows what a rank wrote, in the same bytes."""
    rank = new_rank()
    block = b"line\n" * 1000
    assert rank.write(block) == block


@pytest.mark.parametrize(
    ("prefix", "shown"),
    [
        pytest.param(b"", b"(rank) dsup: given up\n", id="raw"),
        pytest.param(b"[0]:", b"[0]:dsup: given up\n", id="behind a prefix"),
    ],
)
def test_a_forged_line_of_dsup_s_is_seen_to_be_a_rank_s(new_rank, prefix, shown):
    """It has the rank's prefix, or else a mark."""
    assert new_rank(prefix=prefix).write(b"dsup: given up\n") == shown
