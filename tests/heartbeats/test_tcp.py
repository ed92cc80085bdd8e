"""Heartbeats over TCP: who may report, and what strangers can do, which is nothing."""

import contextlib
import os
import select
import socket
import time
from functools import partial

import pytest

from dsup.edges import heartbeat_tcp
from dsup_runtime import contract

WAITING = """
import sys
from dsup_runtime import beat, phase, info, heartbeat
def pause(value="null"):
    print(value, flush=True)
    sys.stdin.readline()
"""
BEAT = "from dsup_runtime import beat, info; beat(7); print(info().supervised)"
SLOT = contract.SLOT_BYTES


@pytest.fixture
def agent(make_agent):
    """Give an agent whose ranks report over TCP."""
    return make_agent("tcp")


@pytest.fixture
def connect(agent):
    """Connect to the agent's port; every connection ends with the test."""
    made = []

    def one(*said):
        host, _, port = agent.where.removeprefix("tcp:").rpartition(":")
        made.append(socket.create_connection((host, int(port)), timeout=600))
        for part in said:
            made[-1].sendall(part)
        return made[-1]

    yield one
    for connection in made:
        connection.close()


def hello(agent, slot=0, attempt=7, token=None, magic=contract.HELLO_MAGIC):
    """Return what a rank says first, changed as told."""
    token = agent.page.carrier.token if token is None else token
    return contract.HELLO.pack(magic, attempt, slot, token.encode())


def hung_up(connection):
    """Return whether the agent has ended a connection."""
    connection.setblocking(False)
    try:
        return connection.recv(1 << 16) == b""
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True


def slot_of(step):
    """Return a slot's bytes that say a step."""
    words = [0] * contract.SLOT_WORDS
    words[contract.SLOT_STEP] = step
    return b"".join(word.to_bytes(8, "little", signed=True) for word in words)


TURNED_AWAY = {
    "no token": (
        lambda agent: hello(agent, token=""),
        "it has not the token of this attempt",
    ),
    "a wrong token": (
        lambda agent: hello(agent, token="0" * 32),
        "it has not the token of this attempt",
    ),
    "a token that is nearly right": (
        lambda agent: hello(agent, token=agent.page.carrier.token[:-1]),
        "it has not the token of this attempt",
    ),
    "another attempt": (lambda agent: hello(agent, attempt=6), "rank 0 of attempt 6"),
    "a slot too far": (lambda agent: hello(agent, slot=2), "rank 2 of attempt 7"),
    "a slot below 0": (lambda agent: hello(agent, slot=-1), "rank -1 of attempt 7"),
    "the least slot": (lambda agent: hello(agent, slot=-(2**63)), "of attempt 7"),
    "another version": (
        lambda agent: hello(agent, magic=b"dsuphi\x00\x02"),
        "it does not speak as this dsup_runtime does",
    ),
    "a page's magic": (
        lambda agent: hello(agent, magic=b"dsuphb\x00\x01"),
        "it does not speak as this dsup_runtime does",
    ),
    "noise": (lambda _: os.urandom(4096), "it does not speak as this"),
    "a web browser": (
        lambda _: (
            b"GET / HTTP/1.1\r\nHost: localhost:8080\r\nUser-Agent: curl/8.0\r\n\r\n"
        ),
        "it does not speak as this",
    ),
}


@pytest.mark.parametrize(("said", "why"), TURNED_AWAY.values(), ids=TURNED_AWAY.keys())
def test_who_is_no_rank_of_this_attempt_is_turned_away(agent, connect, said, why):
    """A stranger is hung up on, told nothing, and named in one line."""
    before = agent.page.copy()
    stranger = connect(said(agent))
    agent.until(lambda: hung_up(stranger))

    (line,) = agent.said
    assert line.startswith("turned somebody away from the heartbeat port: ")
    assert why in line
    assert agent.page.copy() == before


def test_many_strangers_are_worth_one_line(agent, connect):
    """The console is not theirs to fill."""
    strangers = [connect(hello(agent, slot=5)) for _ in range(5)]
    for stranger in strangers:
        agent.until(lambda stranger=stranger: hung_up(stranger))

    assert len(agent.said) == 1


def test_a_hello_may_come_byte_by_byte(agent, connect):
    """A rank is known by what it says, however the network cuts it."""
    rank = connect()
    for byte in hello(agent, slot=1) + slot_of(5):
        rank.sendall(bytes([byte]))
        agent.turn(0)
    agent.until(lambda: agent.page.step() == 5)

    assert agent.slot(1)[contract.SLOT_STEP] == 5
    assert agent.said == []


@pytest.mark.parametrize("cut", [1, SLOT - 1, SLOT + 1, 2 * SLOT - 1])
def test_half_a_slot_is_not_taken(agent, connect, cut):
    """What a rank was about to say when it died is as good as unsaid."""
    rank = connect(hello(agent), slot_of(3), (slot_of(4) + slot_of(5))[:cut])
    rank.shutdown(socket.SHUT_WR)
    agent.until(lambda: agent.page.step() == (3 if cut < SLOT else 4))
    agent.turn()

    assert agent.page.step() == (3 if cut < SLOT else 4)


def test_the_newest_of_many_slots_counts(agent, connect):
    """However many slots have come, one look takes them all in."""
    connect(hello(agent), b"".join(map(slot_of, range(2000))))

    agent.until(lambda: agent.page.step() == 1999)


@pytest.mark.slow
def test_who_never_says_anything_is_dropped_in_time(agent, connect):
    """A connection that nobody speaks on is not kept, nor one that is slow."""
    mute, slow = connect(), connect(hello(agent)[:10])
    agent.until(lambda: agent.page.step() or hung_up(mute))
    agent.until(lambda: agent.page.step() or hung_up(slow))

    assert agent.said == [
        "turned somebody away from the heartbeat port: it did not say who it is"
    ]


@pytest.mark.slow
def test_a_thousand_connections_keep_no_rank_out(agent, connect, start):
    """Strangers take each other's place, and none of a rank's; memory has a bound."""
    before = len(os.listdir("/proc/self/fd"))
    with contextlib.suppress(OSError):  # as many as this process may have
        for number in range(1000):
            connect(b"x" * (number % 56))
            if number % 50 == 0:
                agent.turn(0)
    ours = len(os.listdir("/proc/self/fd"))

    assert start(agent, BEAT).finish() == (0, "True\n", "")
    assert agent.page.step() == 7
    assert ours - before <= 1000 + heartbeat_tcp.STRANGERS_MAX + 2
    assert len(agent.said) <= 1


def test_without_a_descriptor_left_the_agent_goes_on(agent, connect, start):
    """A connection that cannot be taken waits, and the loop does not spin meanwhile."""
    hoard: list[int] = []
    with pytest.raises(OSError, match="Too many open files"):
        hoard.extend(iter(partial(os.dup, 0), None))
    os.close(hoard.pop())
    late = connect(hello(agent, slot=1), slot_of(4))
    began_s, turns = time.monotonic(), 0
    while time.monotonic() - began_s < 0.2:
        agent.turn(0.05)
        turns += 1
    assert turns < 20
    for fd in hoard:
        os.close(fd)

    agent.until(lambda: agent.page.step() == 4)
    assert not hung_up(late)


def test_a_worker_that_sends_without_end_does_not_keep_the_agent(
    agent, connect, calls_of
):
    """One look takes a bounded part of what has come; the rest waits in the kernel."""
    rank = connect(hello(agent))
    rank.setblocking(False)
    agent.turn()
    for _ in range(10):
        with contextlib.suppress(BlockingIOError):
            while True:
                rank.send(os.urandom(1 << 16))
        assert calls_of(agent.page.step) < 2000


def test_a_worker_that_does_not_read_gets_the_newest_page_later(agent, connect):
    """The agent waits for nobody and owes at most one page and the rest of another."""
    rank = connect(hello(agent))
    agent.until(lambda: select.select([rank], [], [], 0)[0])
    for check in range(1, 60_000):
        agent.page.publish(check, "user", -1, "")
    came, size = b"", contract.page_bytes(2)
    rank.settimeout(0.2)

    def newest():
        nonlocal came
        agent.page.step()
        with contextlib.suppress(TimeoutError):
            came += rank.recv(1 << 20)
        whole = len(came) // size * size
        words = memoryview(came[whole - size : whole]).cast("q")
        return words[contract.HEADER_STOP_STEP] == 59_999

    agent.until(newest)


def test_the_port_is_on_this_machine_alone(agent):
    """Nobody beyond the loopback interface can even try."""
    assert agent.where.startswith("tcp:127.0.0.1:")


@pytest.mark.parametrize(
    "where",
    [
        pytest.param("127.0.0.1:1", id="a closed port"),
        pytest.param("127.0.0.1:0", id="no port"),
        pytest.param("127.0.0.1:99999", id="a port too high"),
        pytest.param("127.0.0.1", id="no port at all"),
        pytest.param("localhost:80", id="a name"),
        pytest.param("[::1]:80", id="another family"),
        pytest.param("\N{SNOWMAN}:80", id="no address"),
    ],
)
def test_an_address_that_is_none_is_ignored(agent, start, where):
    """Nothing that the variable can hold stops the training script."""
    env = {contract.HEARTBEAT: f"tcp:{where}#0"}

    assert start(agent, BEAT, env=env).finish() == (0, "False\n", "")


ANSWERS = {
    "nothing, and hangs up": b"",
    "noise": os.urandom(4096),
    "its own words": contract.HELLO.pack(contract.HELLO_MAGIC, 7, 0, b"x" * 32),
    "a page that says it has a million slots": b"".join(
        word.to_bytes(8, "little")
        for word in (contract.MAGIC, 7, 0, 0, 1_000_000, *([0] * 11))
    ),
    "a page without slots": b"".join(
        word.to_bytes(8, "little") for word in (contract.MAGIC, 7, 0, 0, 0, *([0] * 11))
    ),
}


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS.keys())
def test_who_answers_with_anything_but_the_page_is_not_ours(agent, start, answer):
    """A worker that meets another program at the port is unsupervised."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        env = {contract.HEARTBEAT: f"tcp:127.0.0.1:{port}#0"}
        worker = start(agent, BEAT, env=env)
        connection, _ = server.accept()
        connection.recv(contract.HELLO.size)
        connection.sendall(answer)
        connection.close()

        assert worker.finish() == (0, "False\n", "")


@pytest.mark.slow
def test_a_peer_that_never_answers_costs_seconds_once(agent, start):
    """A first beat waits so long for the agent, and no beat after it at all."""
    script = """
import time
from dsup_runtime import beat, info
began_s = time.monotonic()
beat(0)
waited_s = time.monotonic() - began_s
for step in range(1000): beat(step)  # more than an hour, if each waited so long
print(waited_s > 4, info().supervised)
"""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        env = {contract.HEARTBEAT: f"tcp:127.0.0.1:{port}#0"}

        assert start(agent, script, env=env).finish() == (0, "True False\n", "")
