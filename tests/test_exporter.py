"""The exporter: asks, serves, writes; whoever is slow or gone does not stop it."""

import json
import os
import socket
import threading
import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families

from dsup import exporter
from dsup.core.address import address
from dsup.edges.control import sealed

pytestmark = pytest.mark.slow
DEADLINE_S = 600


class Agent:
    """An exporter at work in a thread, and the agent's end of its pair."""

    def __init__(self, base, listen=None):
        self.file = base / "dsup.prom"
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.pair, self._theirs = ours, theirs
        self.pair.settimeout(DEADLINE_S)
        nobody = str(base / "control.sock")
        order = exporter.Order("r", nobody, listen, str(self.file))
        self._thread = threading.Thread(target=exporter.run, args=(order, theirs))
        self._thread.start()

    def end(self, document=None):
        """Send the last word, and wait for the exporter to return."""
        if document is not None:
            fd = sealed(json.dumps(document).encode())
            socket.send_fds(self.pair, [b"last"], [fd])
            os.close(fd)
        self.pair.shutdown(socket.SHUT_WR)
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive()
        self.pair.close()
        self._theirs.close()


def samples(text):
    """Return the value of each sample, as a real parser reads them."""
    return {
        (one.name, *sorted(one.labels.values())): one.value
        for family in text_string_to_metric_families(text)
        for one in family.samples
    }


def test_without_an_agent_the_run_is_down_and_its_last_word_counts(tmp_path):
    """The file says down while nobody answers, and at the end how it ended."""
    agent = Agent(tmp_path)
    agent.end(
        {"outcome": "failed", "live": True, "exit": {"code": 3}, "attempt": 1}
        | {"failures": {"killed": 2}}
    )

    found = samples(agent.file.read_text())
    assert found[("dsup_up", "r")] == 0
    assert found[("dsup_exit_code", "r")] == 3
    assert found[("dsup_attempts_total", "r")] == 2
    assert found[("dsup_failures_total", "killed", "r")] == 2
    assert [path.name for path in tmp_path.iterdir()] == ["dsup.prom"]


def test_those_who_do_not_ask_keep_nobody_out(tmp_path):
    """Many that say a byte now and then, and a scrape after them, which is answered.

    Those that are left are hung up on, too, however often they say something.
    """
    where = free_place()
    agent = Agent(tmp_path, address(":".join(map(str, where))))
    slow = [connected(where) for _ in range(exporter.CONNECTIONS_MAX + 2)]
    stop = threading.Event()
    drips = threading.Thread(target=drip, args=(slow, stop), daemon=True)
    drips.start()
    with urllib.request.urlopen(
        f"http://{where[0]}:{where[1]}/metrics", timeout=DEADLINE_S
    ) as told:
        found = samples(told.read().decode())

    assert found == {("dsup_up", "r"): 0}
    drips.join(DEADLINE_S)
    assert not drips.is_alive()
    stop.set()
    drips.join()
    agent.end()
    for one in slow:
        one.close()


def drip(connections, stop):
    """Say a byte on each of some connections, again and again, until all are cut."""
    left = list(connections)
    for one in left:
        one.setblocking(False)
    while left and not stop.wait(0.1):
        left = [one for one in left if not is_cut(one)]


def is_cut(connection):
    """Say a byte; return whether the other end has hung up."""
    try:
        connection.send(b"a")
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


def free_place():
    """Return an address and a port that nobody is given meanwhile.

    The address is of this process alone. Nor does a client come from there, who on the
    way to a port where nobody listens could be given that very port, and meet itself.
    """
    pid = os.getpid()
    host = f"127.{1 + (pid >> 16) % 254}.{pid >> 8 & 255}.{pid & 255}"
    with socket.socket() as one:
        one.bind((host, 0))
        return one.getsockname()


def connected(where):
    """Return a connection, as soon as somebody listens."""
    for _ in range(100 * DEADLINE_S):
        try:
            return socket.create_connection(where, timeout=DEADLINE_S)
        except ConnectionRefusedError:
            threading.Event().wait(0.01)
    return pytest.fail("nobody listens")


def test_trouble_is_told_once(tmp_path):
    """A directory that is not there costs one line, at the end of the run as well."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    fd = sealed(b'{"attempt": 0}')
    socket.send_fds(ours, [b"last"], [fd])
    os.close(fd)
    order = exporter.Order("r", "/nowhere/x.sock", None, str(tmp_path / "no" / "x"))
    exporter.run(order, theirs)
    theirs.close()

    said, where = ours.recv(4096).decode(), f"{tmp_path}/no/x"
    assert said.startswith(f"cannot write metrics into {where}, because no such file")
    assert ours.recv(4096) == b""
    ours.close()
