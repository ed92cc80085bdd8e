"""``notes.send``: what a worker tells the agent, and where it keeps silent."""

import contextlib
import json
import socket
import tempfile

import pytest

from dsup_runtime import contract

SEND = "from dsup_runtime.notes import send; print(send('stop', reason='enough'))"


@pytest.fixture
def wire():
    """The agent's end and the worker's."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    ours.setblocking(False)
    with ours, theirs:
        yield ours, theirs


def heard(ours):
    """Return the datagrams that have come."""
    found = []
    with contextlib.suppress(BlockingIOError):
        while True:
            found.append(ours.recv(1 << 20))
    return found


def named(theirs):
    """Return what a worker gets that has this end: variable and descriptor."""
    return {
        "env": {contract.NOTES: contract.format_notes(theirs.fileno())},
        "pass_fds": (theirs.fileno(),),
    }


def test_a_note_is_one_datagram_of_json(run, wire):
    """It has a version, a kind and its fields."""
    ours, theirs = wire
    script = "from dsup_runtime.notes import send; print(send('stop', step=17))"

    assert run(script, **named(theirs)) == (0, "True\n", "")
    assert [json.loads(note) for note in heard(ours)] == [
        {"v": 1, "kind": "stop", "step": 17}
    ]


def test_a_full_socket_is_not_waited_for(run, wire):
    """Where the agent does not read, a note is dropped and the worker goes on."""
    ours, theirs = wire
    script = """
from itertools import count
from dsup_runtime.notes import send
print(next(number for number in count() if not send("stop")))
"""
    status, sent, error = run(script, **named(theirs))

    assert (status, error) == (0, "")
    assert len(heard(ours)) == int(sent) > 0


def test_an_agent_that_has_gone_hears_nothing(run, wire):
    """Its death neither raises nor ends the worker by a signal."""
    ours, theirs = wire
    ours.close()

    assert run(SEND, **named(theirs)) == (0, "False\n", "")


def test_without_dsup_nobody_is_told(run):
    """No variable, no note, no descriptor."""
    script = "import os; before = os.listdir('/proc/self/fd'); " + SEND
    script += "; assert os.listdir('/proc/self/fd') == before"

    assert run(script) == (0, "False\n", "")


def stream():
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)


def internet():
    ours, theirs = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
    ours.bind(("127.0.0.1", 0))
    theirs.connect(ours.getsockname())
    return ours, theirs


@pytest.mark.parametrize("make", [stream, internet])
def test_a_socket_of_another_kind_is_left_alone(run, make):
    """A stream, and a datagram socket of the network, are not written to."""
    ours, theirs = make()
    ours.setblocking(False)
    with ours, theirs:
        assert run(SEND, **named(theirs)) == (0, "False\n", "")
        assert heard(ours) == []


def test_a_file_is_left_alone(run):
    """Nothing is written into what the number has come to be."""
    with tempfile.TemporaryFile() as file:
        assert run(SEND, **named(file)) == (0, "False\n", "")
        assert file.read() == b""


@pytest.mark.parametrize(
    "value",
    [
        pytest.param("fd:999", id="a closed descriptor"),
        pytest.param("fd:99999999999999999999", id="no descriptor at all"),
        pytest.param(f"fd:{'9' * 5000}", id="5000 digits"),
        pytest.param("unix:/tmp/x", id="a kind of a later dsup"),
        pytest.param("", id="empty"),
    ],
)
def test_a_variable_that_names_no_socket_is_ignored(run, value):
    """Nothing that the variable can hold stops the training script."""
    assert run(SEND, env={contract.NOTES: value}) == (0, "False\n", "")


def test_a_number_that_is_another_s_by_now_is_left_alone(run, wire):
    """Whatever the script opened in the socket's place gets no note."""
    ours, theirs = wire
    script = f"""
import os, socket
from dsup_runtime.notes import send
assert send("stop")
mine, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
os.dup2(other.fileno(), {theirs.fileno()})
assert not send("stop")
mine.setblocking(False)
try:
    mine.recv(1)
except BlockingIOError:
    print("nothing came")
"""
    assert run(script, **named(theirs)) == (0, "nothing came\n", "")
    assert len(heard(ours)) == 1


def test_texts_that_are_too_long_lose_their_middles(run, wire):
    """The note fits into a datagram and still says how it begins and ends."""
    ours, theirs = wire
    script = r"""
from dsup_runtime.notes import send
text = "begin" + "\0" * 1_000_000 + "the end"
assert send("outcome", step=3, error={"message": text, "causes": [text, text]})
"""
    assert run(script, **named(theirs)) == (0, "", "")
    [note] = heard(ours)
    assert len(note) <= contract.NOTE_MAX_BYTES
    fields = json.loads(note)
    assert fields["step"] == 3
    for text in (fields["error"]["message"], *fields["error"]["causes"]):
        assert text.startswith("begin")
        assert text.endswith("the end")


@pytest.mark.parametrize(
    ("value", "sent"),
    [
        pytest.param("list(range(100_000))", None, id="too long without a text"),
        pytest.param("circle", None, id="holds itself"),
        pytest.param("deep", None, id="nested too deeply"),
        pytest.param("Odd()", None, id="a text that cannot be had"),
        pytest.param("{1: ValueError('no')}", {"1": "no"}, id="any object"),
        pytest.param(r"'\udc80'", "\udc80", id="no text in its bytes"),
    ],
)
def test_any_value_may_be_given(run, wire, value, sent):
    """What JSON cannot hold goes as its text, or not at all; nothing is raised."""
    ours, theirs = wire
    script = f"""
from dsup_runtime.notes import send
circle = []; circle.append(circle)
deep = 0
for _ in range(100_000): deep = [deep]
class Odd:
    def __str__(self): raise OSError
print(send("outcome", value={value}))
"""
    status, told, error = run(script, **named(theirs))

    assert (status, error) == (0, "")
    assert told == f"{sent is not None}\n"
    expected = [] if sent is None else [sent]
    assert [json.loads(note)["value"] for note in heard(ours)] == expected


def test_a_forked_helper_does_not_speak_for_its_rank(run, wire):
    """A DataLoader's worker has the socket, and sends nothing."""
    ours, theirs = wire
    script = """
import os
from dsup_runtime.notes import send
assert send("stop", by="rank")
if (child := os.fork()) == 0:
    os._exit(send("stop", by="helper"))
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""
    assert run(script, **named(theirs)) == (0, "", "")
    assert [json.loads(note)["by"] for note in heard(ours)] == ["rank"]


def test_a_program_that_a_rank_starts_does_not_speak_for_it(run, wire, page):
    """The page knows who the rank is, even if the socket was handed on."""
    ours, theirs = wire
    script = f"""
import subprocess, sys
from dsup_runtime.notes import send
assert send("stop", by="rank")
command = [sys.executable, "-c", {SEND!r}]
fds = [{page.fd}, {theirs.fileno()}]
print(subprocess.run(command, pass_fds=fds, capture_output=True, text=True).stdout)
"""
    where = named(theirs)
    where["pass_fds"] += (page.fd,)

    assert run(script, page=page, **where) == (0, "False\n\n", "")
    assert [json.loads(note)["by"] for note in heard(ours)] == ["rank"]


def test_a_program_that_a_rank_starts_does_not_get_the_socket(run, wire):
    """Once it is used it is not inherited, with the bootstrap or without it."""
    _, theirs = wire
    script = f"""
import os
from dsup_runtime.notes import send
assert os.get_inheritable({theirs.fileno()})
send("stop")
assert not os.get_inheritable({theirs.fileno()})
"""
    assert run(script, **named(theirs)) == (0, "", "")
