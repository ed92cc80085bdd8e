"""The case file: what a rank tells is kept, and what the machine is told of it."""

import json
import os
import socket
import time
from types import SimpleNamespace

import pytest

from dsup import judging
from dsup.casefile import NOTES_MAX, CaseFile
from dsup.core import commands as cmd
from dsup.core import events as ev
from dsup.edges.group import Rank
from dsup.edges.loop import Loop


def note(**fields):
    """Return a note of rank 0's main thread."""
    known = {"v": 1, "kind": "raised", "type": "ValueError", "text": "no", "pid": 4000}
    return json.dumps({**known, **fields}).encode()


@pytest.fixture
def told():
    """A case file with one rank, that rank's end of the notes, and what was posted."""
    posted: list[ev.Event] = []
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    ours.setblocking(False)
    theirs.setblocking(False)
    file = CaseFile(0, 1, Loop(), posted.append)
    rank = Rank(0, 4000, -1, -1, -1, os.dup(ours.fileno()))
    file.add(rank)

    def send(raw):
        theirs.send(raw)
        file.before_reap(rank)

    yield SimpleNamespace(file=file, send=send, posted=posted)
    file.close()
    ours.close()
    theirs.close()


@pytest.mark.parametrize(
    ("fields", "decisive"),
    [
        pytest.param({}, True, id="uncaught"),
        pytest.param({"handed": 1}, False, id="handed over by the program"),
        pytest.param({"thread": "prefetch"}, False, id="in a thread"),
    ],
)
def test_only_what_ends_a_rank_is_decisive(told, fields, decisive):
    """Nobody is ended sooner for an exception that a rank survives."""
    told.send(note(**fields))

    assert [event.decisive for event in told.posted] == [decisive]


def test_a_rank_that_tells_too_much_is_noted(told):
    """Its first notes are kept, and that there were more is no secret."""
    for _ in range(NOTES_MAX):
        assert not told.file.case().known.deafened
        told.send(note(handed=1))

    assert told.file.case().known.deafened == (0,)


@pytest.mark.parametrize("fields", [{"handed": 1}, {"thread": "prefetch"}])
def test_an_error_file_counts_beside_a_note_of_something_survived(told, fields):
    """Torch's own word on the end is not passed over for it."""
    told.send(note(**fields))
    error = {0: b'{"message": "KeyError: lr"}'}
    case = told.file.case()._replace(error_files=error)

    types = [raised.type for raised in judging.timeline(case).raised]
    assert sorted(types) == ["KeyError", "ValueError"]


@pytest.mark.parametrize("kind", ["preempt", "user"])
def test_a_rank_that_leaves_a_stop_as_asked_was_not_dying_of_anything(told, kind):
    """It may already be on its way out when another is seen to have failed."""
    told.file.add(Rank(1, 4001, -1, -1, -1, os.eventfd(0)))
    told.file.stopped(cmd.PublishStop("publish_stop", 0, 5, kind, -1, "", 9.0))
    now_s = time.monotonic()
    told.file.ended(ev.RankExited("rank_exited", now_s, 0.0, 0, 1, 3, (0,)))
    told.file.before_signal([0])
    told.file.ended(ev.RankExited("rank_exited", now_s, 0.0, 0, 0, 143, ()))

    known = told.file.case().known
    assert [(end.rank, end.dying) for end in known.ends] == [(1, False), (0, False)]
    assert known.standing == ()
    assert set(known.signalled) == {0}
