"""What a service manager hears: real datagrams, and nothing that could hold dsup up."""

import math
import socket

import pytest

from dsup.edges.service import Service


@pytest.fixture
def manager(tmp_path):
    """Return a service manager's socket and the variables that name it."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ear:
        ear.bind(str(tmp_path / "notify"))
        ear.setblocking(False)
        yield ear, {"NOTIFY_SOCKET": str(tmp_path / "notify")}


def heard(ear):
    """Return the messages that have come."""
    messages = []
    try:
        while True:
            messages.append(ear.recv(4096).decode())
    except BlockingIOError:
        return messages


def test_it_is_told_of_a_runs_life(manager):
    """Ready, how it stands, and the end; what has not changed is told once."""
    ear, environment = manager
    service = Service(environment)
    service.ready()
    service.status("attempt 0, 8 ranks")
    service.status("attempt 0, 8 ranks")
    service.stopping()

    assert heard(ear) == ["READY=1", "STATUS=attempt 0, 8 ranks", "STOPPING=1"]


def test_the_watchdog_gets_a_sign_twice_in_its_time(manager):
    """Half of what it waits, so that one sign may be late."""
    ear, environment = manager
    service = Service({**environment, "WATCHDOG_USEC": "4000000"})
    for now_s in (10.0, 11.0, 12.0, 13.9, 14.0):
        service.beat(now_s)

    assert heard(ear) == ["WATCHDOG=1"] * 3
    assert service.due_s == 16.0


def test_an_abstract_socket_is_found():
    """A name that begins with @ stands for one outside of the file system."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ear:
        ear.bind("")  # the kernel chooses an abstract name
        ear.setblocking(False)
        name = ear.getsockname().decode()
        Service({"NOTIFY_SOCKET": name.replace("\0", "@", 1)}).ready()

        assert heard(ear) == ["READY=1"]


@pytest.mark.parametrize(
    "environment",
    [
        pytest.param({}, id="no service manager"),
        pytest.param({"NOTIFY_SOCKET": "/nonexistent/notify"}, id="one that has gone"),
        pytest.param({"NOTIFY_SOCKET": "x" * 500}, id="a path that is too long"),
        pytest.param({"WATCHDOG_USEC": "4000000"}, id="a watchdog without a socket"),
    ],
)
def test_without_an_ear_nothing_happens(environment):
    """No call fails, and without a watchdog that hears nothing is ever due."""
    service = Service(environment)
    service.ready()
    service.status("words")
    service.stopping()
    service.beat(1.0)

    assert service.due_s == math.inf


@pytest.mark.parametrize("word", ["", "0", "soon", "-5"])
def test_a_watchdog_that_says_no_time_is_none(manager, word):
    """A value that makes no sense means that nobody watches."""
    _, environment = manager

    assert Service({**environment, "WATCHDOG_USEC": word}).due_s == math.inf


def test_a_manager_that_does_not_listen_holds_nobody_up(manager):
    """A full socket costs the message, never time."""
    ear, environment = manager
    service = Service(environment)
    for _ in range(5000):
        service.ready()

    assert 0 < len(heard(ear)) < 5000
