"""systemd's journal: lines with fields, whole, once, and never waited for."""

import os
import socket
from math import inf

import pytest

from dsup.edges.scribe.journald import (
    LINE_MAX_BYTES,
    UNFINISHED_S,
    Journald,
    leads_to_journal,
)


class Listener:
    """A journal's socket, and what is told to it."""

    def __init__(self, address):
        self.address = str(address)
        self.heard = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.heard.bind(self.address)
        self.heard.setblocking(False)

    def entries(self):
        """Return what was told, each entry as a dictionary of lists."""
        found: list[dict[str, list[str]]] = []
        while True:
            try:
                data = self.heard.recv(1 << 20)
            except BlockingIOError:
                return found
            entry: dict[str, list[str]] = {}
            while data:
                name, _, rest = data.partition(b"\n")
                if b"=" in name:
                    name, _, value = name.partition(b"=")
                    data = rest
                else:
                    size = int.from_bytes(rest[:8], "little")
                    value, data = rest[8 : 8 + size], rest[8 + size + 1 :]
                entry.setdefault(name.decode(), []).append(value.decode())
            found.append(entry)

    def messages(self):
        """Return the messages alone."""
        return [entry["MESSAGE"][0] for entry in self.entries()]


class Stream(list):
    """What is shown on the stream instead."""

    def add(self, _owner, block):
        """Take whole lines."""
        self.append(block)


@pytest.fixture
def journal(tmp_path):
    """Listen as a journal."""
    made = Listener(tmp_path / "journal")
    yield made
    made.heard.close()


@pytest.fixture
def clock():
    """Give a clock that the test moves."""
    return [0.0]


@pytest.fixture
def told(journal, clock):
    """Give the way to the journal."""
    made = Journald("run-1", lambda: clock[0], journal.address)
    yield made
    made.finish()


def test_a_line_of_a_rank_is_an_entry_of_its_own(journal, told):
    """Rank, stream, attempt and run are fields; the text is as the console has it."""
    pieces = told.open(2, 3, 1, Stream())
    pieces.add(pieces, b"[rank3]: loss 0.5\nnext\n")

    first, second = journal.entries()
    assert first == {
        "MESSAGE": ["[rank3]: loss 0.5"],
        "SYSLOG_IDENTIFIER": ["dsup"],
        "PRIORITY": ["5"],
        "DSUP_RUN": ["run-1"],
        "DSUP_ATTEMPT": ["2"],
        "DSUP_RANK": ["3"],
        "DSUP_STREAM": ["stderr"],
    }
    assert second["MESSAGE"] == ["next"]


def test_a_line_of_dsup_is_as_grave_as_it_is(journal, told):
    """A verdict has fields of its own; each first rank is a value."""
    fields = {"DSUP_CAUSE": "host_oom", "DSUP_RANK": [3, 5], "DSUP_ATTEMPT": 1}

    assert told.say("größe".encode(), "failure", fields)
    (entry,) = journal.entries()
    assert (entry["PRIORITY"], entry["MESSAGE"]) == (["3"], ["größe"])
    assert (entry["DSUP_RANK"], entry["DSUP_ATTEMPT"]) == (["3", "5"], ["1"])


def test_a_message_of_several_lines_forges_no_field(journal, told):
    """What looks like a field in a text is text."""
    told.say(b"one\nPRIORITY=0\n_PID=1", "plain")
    (entry,) = journal.entries()

    assert entry["MESSAGE"] == ["one\nPRIORITY=0\n_PID=1"]
    assert entry["PRIORITY"] == ["6"]


def test_an_unfinished_line_waits_for_its_end(journal, told, clock):
    """A second long; then it is shown as it is."""
    pieces = told.open(0, 0, 0, Stream())
    pieces.add(pieces, b"step 1")
    assert (journal.messages(), pieces.continues(None)) == ([], True)
    pieces.add(pieces, b"2\nPassword: ")
    assert journal.messages() == ["step 12"]
    clock[0] += UNFINISHED_S
    assert told.due_s <= clock[0]
    told.turn()

    assert (journal.messages(), told.due_s) == (["Password: "], inf)


def test_a_line_without_end_takes_bounded_memory(journal, told):
    """It comes in pieces of 48 KiB."""
    pieces = told.open(0, 0, 0, Stream())
    pieces.add(pieces, b"x" * (2 * LINE_MAX_BYTES + 1))

    sizes = [len(text) for text in journal.messages()]
    assert sizes == [LINE_MAX_BYTES, LINE_MAX_BYTES, 1]


@pytest.mark.parametrize("trouble", ["gone", "full"])
def test_what_the_journal_does_not_take_goes_through_the_stream(journal, told, trouble):
    """Each line is shown once, in one of the two places, and nobody waits."""
    stream = Stream()
    pieces = told.open(0, 0, 0, stream)
    if trouble == "gone":
        os.unlink(journal.address)
    sent = 1000 if trouble == "full" else 1
    pieces.add(pieces, b"".join(b"line %d\n" % number for number in range(sent)))

    shown = [line.decode().rstrip() for line in stream]
    assert shown
    assert journal.messages() + shown == [f"line {number}" for number in range(sent)]


def test_only_the_very_stream_of_the_journal_counts(tmp_path):
    """A variable that was inherited past a redirection means nothing."""
    file = tmp_path / "out"
    fd = os.open(file, os.O_CREAT | os.O_WRONLY)
    found = os.fstat(fd)

    assert leads_to_journal(fd, f"{found.st_dev}:{found.st_ino}")
    assert not leads_to_journal(fd, f"{found.st_dev}:{found.st_ino + 1}")
    os.close(fd)
    assert not leads_to_journal(fd, f"{found.st_dev}:{found.st_ino}")
