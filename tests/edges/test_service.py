"""The service manager: told what it must know, and never able to harm the run."""

import secrets
import select
import socket

import pytest

from dsup.core.state import NEVER
from dsup.edges.service import STATUS_MAX, Service

HALF_S = 5.0
WATCHDOG = {"WATCHDOG_USEC": "10000000", "WATCHDOG_PID": "4711"}
PIDS = {4711, 4712}
QUEUE_MAX = 10_000


class Manager:
    """A notify socket, and what is said to it."""

    def __init__(self, address):
        self.address = address
        self.heard = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.heard.bind(address)

    def message(self):
        """Return the next message as a dictionary, in its order."""
        assert not self.silent(), "nothing was said"
        lines = self.heard.recv(4096).decode().split("\n")
        return dict(line.split("=", 1) for line in lines)

    def silent(self):
        """Return whether nothing waits: what was sent has arrived."""
        return not select.select([self.heard], [], [], 0)[0]

    def fill(self):
        """Make the queue full, as a manager that hangs does."""
        for _ in range(QUEUE_MAX):
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
                other.setblocking(False)
                try:
                    other.sendto(b"X=1", self.address)
                except BlockingIOError:
                    return
        pytest.fail("the queue takes everything")

    def empty(self):
        """Take in all that waits."""
        while not self.silent():
            self.heard.recv(4096)


@pytest.fixture
def manager(tmp_path):
    """Listen on a socket in a directory."""
    made = Manager(str(tmp_path / "notify"))
    yield made
    made.heard.close()


@pytest.fixture
def service(manager):
    """Give a service under a watchdog of 10 s."""
    return made({"NOTIFY_SOCKET": manager.address} | WATCHDOG)


def made(environment):
    """Return the service of a guard and an agent with these pids."""
    return Service(environment, PIDS)


@pytest.mark.parametrize(
    ("tell", "message"),
    [
        pytest.param(lambda s: s.ready(), {"READY": "1"}, id="ready"),
        pytest.param(
            lambda s: s.stopping(30.5),
            {"STOPPING": "1", "EXTEND_TIMEOUT_USEC": "30500000"},
            id="stopping, and how long that may take",
        ),
        pytest.param(lambda s: s.status("größe"), {"STATUS": "größe"}, id="status"),
        pytest.param(lambda s: s.beat(0.0), {"WATCHDOG": "1"}, id="beat"),
    ],
)
def test_each_call_is_one_message(service, manager, tell, message):
    """What is told arrives at once, in the words of the protocol."""
    tell(service)

    assert manager.message() == message
    assert manager.silent()


def test_an_abstract_socket_is_found():
    """An address that begins with @ is in no directory."""
    name = f"dsup-test-{secrets.token_hex(8)}"
    manager = Manager(f"\0{name}")
    made({"NOTIFY_SOCKET": f"@{name}"}).ready()
    message = manager.message()
    manager.heard.close()

    assert message == {"READY": "1"}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        pytest.param("a\nREADY=1", "a\\nREADY=1", id="a line break"),
        pytest.param("a\x1b[2J", "a\\x1b[2J", id="an escape"),
        pytest.param("\udcff", "\\udcff", id="no text"),
        pytest.param("x" * 5000, "x" * STATUS_MAX, id="more than a message holds"),
    ],
)
def test_a_status_stays_one_line(service, manager, text, shown):
    """No text can say another thing to the manager, or too much."""
    service.status(text)

    assert manager.message() == {"STATUS": shown}


def test_a_beat_is_sent_when_it_is_due(service, manager):
    """Twice in the watchdog's time, however often the loop turns."""
    service.beat(100.0)
    service.beat(100.0 + HALF_S - 0.1)

    assert manager.message() == {"WATCHDOG": "1"}
    assert manager.silent()
    assert service.due_s == 100.0 + HALF_S
    service.beat(100.0 + HALF_S)
    assert manager.message() == {"WATCHDOG": "1"}


@pytest.mark.parametrize(
    "environment",
    [
        pytest.param({}, id="no watchdog"),
        pytest.param(WATCHDOG | {"WATCHDOG_PID": "1"}, id="another process's"),
        pytest.param(WATCHDOG | {"WATCHDOG_USEC": "0"}, id="switched off"),
        pytest.param(WATCHDOG | {"WATCHDOG_USEC": "-5"}, id="negative"),
        pytest.param(WATCHDOG | {"WATCHDOG_USEC": "1s"}, id="no number"),
        pytest.param(WATCHDOG | {"WATCHDOG_USEC": "9" * 5000}, id="endless"),
    ],
)
def test_without_a_watchdog_nothing_is_due(manager, environment):
    """Then the loop need not wake for it, and a beat says nothing."""
    service = made({"NOTIFY_SOCKET": manager.address} | environment)
    service.beat(1e9)

    assert service.due_s == NEVER
    assert manager.silent()


@pytest.mark.parametrize("pid", ["4711", "4712", ""])
def test_the_watchdog_may_mean_guard_or_agent(manager, pid):
    """The main process is the guard; other managers name nobody."""
    named = WATCHDOG | {"WATCHDOG_PID": pid}
    service = made({"NOTIFY_SOCKET": manager.address} | named)

    assert service.due_s < 0


@pytest.mark.parametrize(
    "address",
    [
        pytest.param("", id="empty"),
        pytest.param("vsock:2:1234", id="another family"),
        pytest.param("notify", id="relative"),
        pytest.param("/" + "x" * 200, id="too long"),
        pytest.param("/nowhere/notify", id="not there"),
    ],
)
def test_where_no_manager_listens_nothing_happens(address, capfd):
    """No error, no line on the console, and a watchdog can not make the loop spin."""
    service = made({"NOTIFY_SOCKET": address} | WATCHDOG)
    service.ready()
    service.status("attempt 0")
    service.stopping(1.0)
    service.beat(100.0)

    assert service.due_s > 100.0
    assert capfd.readouterr() == ("", "")


def test_nothing_is_kept_open(service, manager, descriptors):
    """The ranks and aides that are started later inherit no way to the manager."""
    before = descriptors()
    service.ready()
    service.beat(100.0)

    assert descriptors() == before


def test_a_manager_that_hangs_costs_no_time(service, manager):
    """A full queue is no reason to wait for ever; the beat is tried again soon."""
    manager.fill()
    service.ready()
    service.beat(100.0)

    assert 100.0 < service.due_s < 100.0 + HALF_S


def test_what_could_not_be_told_is_told_later(service, manager):
    """One message with the latest of each kind, though no beat is due."""
    service.beat(100.0)
    manager.fill()
    service.ready()
    service.status("attempt 0")
    service.status("attempt 1")
    manager.empty()
    service.beat(100.5)

    assert manager.message() == {"READY": "1", "STATUS": "attempt 1"}
    service.beat(101.0)
    assert manager.silent()


def test_a_manager_that_comes_back_is_told(manager, tmp_path):
    """A notify socket may be made anew, as when a container's manager restarts."""
    service = made({"NOTIFY_SOCKET": str(tmp_path / "later")})
    service.ready()
    later = Manager(str(tmp_path / "later"))
    service.beat(100.0)
    message = later.message()
    later.heard.close()

    assert message == {"READY": "1"}
