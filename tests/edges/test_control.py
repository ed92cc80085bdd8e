"""The control socket: who is answered, who is not, and that nobody is waited for."""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time

import pytest

from dsup import control_client
from dsup.core.errors import DsupError
from dsup.edges import control
from dsup.edges.loop import Loop
from dsup_runtime import contract

SILENT = 40
DEADLINE_S = 600.0
ASK = """
import os, sys
from dsup import control_client
os.setuid(65534)  # now: the interpreter's files may be root's alone
try:
    print(control_client.ask(sys.argv[1], {"ask": "status"}))
except control_client.NoAnswerError as error:
    print(error)
"""


class Agent:
    """A loop that answers every request with what it was asked."""

    def __init__(self, directory, elsewhere=()):
        self.loop = Loop()
        self.listener = control.Listener(self.loop, self._answer, 2 * DEADLINE_S)
        self.why_not = self.listener.open(str(directory), elsewhere)
        self.path = self.listener.where
        self.asked = []
        self.fd = control.sealed(b'{"alive": 3}')

    def _answer(self, request, peer):
        self.asked.append((request, peer))
        return control.Reply(b'{"ok": true, "bytes": 12}', self.fd)

    def turn(self, until):
        """Turn as an agent does, until something holds."""
        end_s = time.monotonic() + DEADLINE_S
        while not until() and time.monotonic() < end_s:
            self.loop.turn(min(time.monotonic() + 0.05, self.listener.due_s))
            self.listener.expire(time.monotonic())
        assert until()

    def serve(self, work):
        """Return what work, done by another thread, comes to while the agent turns."""
        came = []

        def run():
            try:
                came.append(work())
            except (OSError, DsupError) as error:
                came.append(error)

        other = threading.Thread(target=run)
        other.start()
        self.turn(lambda: came)
        other.join()
        return came[0]

    def ask(self, request=None):
        """Return what a client gets."""
        request = request or {"ask": "status"}
        return self.serve(lambda: control_client.ask(self.path, request, DEADLINE_S))


@pytest.fixture
def agent(short_dir):
    """Give an agent that listens in a run directory."""
    made = Agent(short_dir)
    yield made
    made.listener.close()
    os.close(made.fd)


@pytest.fixture
def short_dir():
    """Give a directory that other users may come to."""
    made = tempfile.mkdtemp(prefix="dsup-control-")
    os.chmod(made, 0o755)  # noqa: S103 (others are to try)
    yield made
    shutil.rmtree(made)


@pytest.fixture
def connect(agent):
    """Give ``connect(data)``: a client that says that, and nothing more."""
    made = []

    def client(data=None):
        one = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        one.settimeout(DEADLINE_S)
        made.append(one)
        one.connect(agent.path)
        if data is not None:
            one.send(data)
        return one

    yield client
    for one in made:
        one.close()


def test_a_request_is_answered_with_a_document(agent):
    """The answer comes as a file; whose request it was, the kernel says."""
    assert agent.ask() == {"alive": 3}
    ((request, peer),) = agent.asked
    assert json.loads(request) == {"ask": "status"}
    assert peer == (os.getpid(), os.geteuid())
    assert agent.path.endswith(contract.CONTROL_SOCKET)


def test_what_is_handed_out_cannot_be_changed(agent):
    """Who asks next gets the same file: nobody may have written into it."""
    with pytest.raises(PermissionError):
        os.write(agent.fd, b"x")


@pytest.mark.slow
def test_those_who_do_not_speak_are_dropped_and_keep_nobody(
    agent, connect, descriptors
):
    """Forty that connect take few descriptors, and the next is answered."""
    before = len(descriptors())
    silent = [connect() for _ in range(SILENT)]

    assert agent.ask() == {"alive": 3}
    ours = len(descriptors()) - before - SILENT
    assert ours <= control.SILENT_MAX
    agent.listener.expire(time.monotonic() + 2 * DEADLINE_S)
    assert silent[-1].recv(1) == b""
    assert len(descriptors()) == before + SILENT


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        pytest.param(b"x" * (control.REQUEST_MAX_BYTES + 1), "too long", id="long"),
        pytest.param(b"x" * 100_000, "too long", id="huge"),
    ],
)
def test_a_request_that_is_too_long_is_refused(agent, connect, data, reason):
    """Not a byte of it is looked at."""
    client = connect(data)

    assert reason in json.loads(agent.serve(lambda: client.recv(4096)))["error"]
    assert agent.asked == []


def test_one_who_hangs_up_costs_nothing(agent, connect, descriptors):
    """Before it has asked, or before it was answered."""
    before = descriptors()
    connect().close()
    connect(b'{"ask": "status"}').close()

    assert agent.ask() == {"alive": 3}
    agent.turn(lambda: descriptors() == before)


def output(command):
    """Return what a program says."""
    return subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout


@pytest.mark.root
def test_another_user_is_told_whose_run_it_is(agent):
    """Even where the socket's mode lets anybody connect; nothing is done for it."""
    os.chmod(agent.path, 0o777)  # noqa: S103 (anybody is to try)
    command = [sys.executable, "-c", ASK, agent.path]
    said = agent.serve(lambda: output(command))

    assert "this run is of user id 0" in said
    assert agent.asked == []
    os.chmod(agent.path, 0o700)
    assert "another user's" in output(command)


def test_a_path_too_long_for_a_socket_is_reached_all_the_same(tmp_path):
    """A socket's path has 107 bytes; a run directory's may have many more."""
    long = tmp_path / ("a" * 100) / ("b" * 100)
    long.mkdir(parents=True)
    agent = Agent(long)
    try:
        assert agent.why_not == ""
        assert agent.ask() == {"alive": 3}
    finally:
        agent.listener.close()
        os.close(agent.fd)


def test_a_directory_that_is_gone_leaves_another_place(tmp_path):
    """As a run directory on a network does, whose socket other nodes would see."""
    tmp_path.chmod(0o700)
    agent = Agent(tmp_path / "gone", (str(tmp_path / "no-{}"), str(tmp_path)))
    try:
        assert agent.why_not == ""
        assert not agent.path.startswith(str(tmp_path / "gone/"))
        known = {"control": agent.path}
        assert control_client.socket_of("/x", known) == agent.path
        assert agent.ask() == {"alive": 3}
    finally:
        agent.listener.close()
        os.close(agent.fd)
        os.unlink(agent.path)


def test_a_socket_nobody_listens_at_is_told_from_one_that_is_not_there(agent):
    """A killed agent leaves its socket behind."""
    with pytest.raises(control_client.NotRunningError, match="no such socket"):
        control_client.ask(f"{agent.path}x", {"ask": "status"})
    agent.listener.close()
    with pytest.raises(control_client.NotRunningError, match="nobody listens"):
        control_client.ask(agent.path, {"ask": "status"})


@pytest.mark.slow
def test_an_agent_that_is_stopped_is_not_waited_for(agent):
    """The client says after its time what to look at."""
    with pytest.raises(control_client.NoAnswerError, match="did not answer within"):
        control_client.ask(agent.path, {"ask": "status"}, 0.3)
