"""Notes: what a rank tells arrives whole, and nothing it does can hold the agent up."""

import os
import socket

import pytest

from dsup.edges import notes
from dsup_runtime import contract


@pytest.fixture
def channel():
    """Return the agent's descriptor and a rank's end of a socket pair."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    ours.setblocking(False)
    theirs.setblocking(False)
    yield ours.fileno(), theirs
    ours.close()
    theirs.close()


def test_each_note_is_read_whole_and_in_order(channel):
    """One datagram is one note."""
    fd, rank = channel
    rank.send(b"first")
    rank.send(b"second")

    assert notes.read(fd) == [b"first", b"second"]


def test_without_a_note_nothing_is_waited_for(channel):
    """An empty socket is no reason to block."""
    fd, _ = channel

    assert notes.read(fd) == []


def test_a_flood_is_read_in_bounded_portions(channel):
    """A rank that sends without end takes at most sixteen notes' time at once."""
    fd, rank = channel
    sent = 0
    try:
        while True:
            rank.send(b"x")
            sent += 1
    except BlockingIOError:
        assert sent > 0

    assert len(notes.read(fd)) == min(16, sent)


def test_a_note_beyond_the_limit_is_dropped(channel):
    """What would be cut is no JSON any more; the one behind it is read."""
    fd, rank = channel
    rank.send(b"x" * (contract.NOTE_MAX_BYTES + 1))
    rank.send(b"next")

    assert notes.read(fd) == [b"next"]


def test_the_descriptor_stays_open_though_the_rank_has_gone(channel):
    """Reading closes nothing; whoever took the rank does."""
    fd, rank = channel
    rank.close()

    assert notes.read(fd) == []
    os.fstat(fd)
