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


def test_a_descriptor_that_a_note_carries_is_not_taken(channel, descriptors):
    """A rank can not fill the agent's table of descriptors."""
    fd, rank = channel
    before = descriptors()
    socket.send_fds(rank, [b"note"], [rank.fileno()] * 9)

    assert notes.read(fd) == [b"note"]
    assert descriptors() == before


def test_a_socket_that_the_rank_has_reset_is_no_error(channel):
    """A rank may do with its end what it likes."""
    fd, rank = channel
    rank.send(b"before")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
        other.bind("")
        rank.connect(other.getsockname())

    assert [notes.read(fd), notes.read(fd)] == [[b"before"], []]


def test_a_blocking_socket_does_not_block_either():
    """Reading never waits, however the descriptor is set."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with ours, theirs:
        assert notes.read(ours.fileno()) == []


def test_a_deafened_socket_keeps_nobody_waiting(channel):
    """A rank that floods gets an error of its own, and the agent has peace."""
    fd, rank = channel
    rank.send(b"one")
    notes.deafen(fd)

    with pytest.raises(BrokenPipeError):
        rank.send(b"another")
    os.fstat(fd)
