"""MASTER_PORT: held for the ranks of one attempt, and for nobody else."""

import contextlib
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from dsup.core.errors import SpecError
from dsup.edges import port


@pytest.fixture
def held():
    """Hold a port of the kernel's choice."""
    with port.hold() as holding:
        yield holding


@contextlib.contextmanager
def stream(family=socket.AF_INET, *, reuse=False):
    with socket.socket(family, socket.SOCK_STREAM) as made:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, reuse)
        yield made


def test_a_held_port_is_not_listening(held):
    """Nobody can connect to it before rank 0 serves there."""
    with stream() as client, pytest.raises(ConnectionRefusedError):
        client.connect(("127.0.0.1", port.number(held)))

    assert port.number(held) > 0
    assert not os.get_inheritable(held.fileno())


@pytest.mark.parametrize(
    ("family", "address"),
    [
        pytest.param(socket.AF_INET, "", id="every address"),
        pytest.param(socket.AF_INET, "127.0.0.1", id="one address"),
        pytest.param(socket.AF_INET6, "::", id="IPv6 and IPv4"),
    ],
)
def test_a_held_port_cannot_be_bound_by_another(held, family, address):
    """Unless it says SO_REUSEADDR, as the store of the ranks does."""
    with stream(family) as other, pytest.raises(OSError, match="already in use"):
        other.bind((address, port.number(held)))


@pytest.mark.parametrize("reuse", [False, True], ids=["plain", "SO_REUSEADDR"])
def test_a_held_port_is_never_given_to_another(reuse):
    """Not to 300 who let the kernel choose, with a narrow range to choose from."""
    with contextlib.ExitStack() as stack:
        ours = {port.number(stack.enter_context(port.hold())) for _ in range(50)}
        others = [stack.enter_context(stream(reuse=reuse)) for _ in range(300)]
        for other in others:
            other.bind(("", 0))
        theirs = {port.number(other) for other in others}

    assert len(ours) == 50
    assert not ours & theirs


NARROW = """
import socket, subprocess
from dsup.edges import port
subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
with open("/proc/sys/net/ipv4/ip_local_port_range", "w") as ports:
    ports.write("40000 40009")
held = [port.hold() for _ in range(5)]
with socket.create_server(("127.0.0.1", 9)) as server:
    found, clients, refused = set(), [], []
    for way in (bind, connect):
        for _ in range(20):
            client = socket.socket()
            clients.append(client)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, {reuse})
            try:
                way(client, server)
            except OSError as error:
                refused.append(error.errno)
                continue
            found.add(port.number(client))
print(len(refused) > 0, found & set(map(port.number, held)))
"""

WAYS = """
def bind(client, server):
    client.bind(("", 0))

def connect(client, server):
    client.connect(server.getsockname())

"""


@pytest.mark.root
@pytest.mark.parametrize("reuse", [0, 1], ids=["plain", "SO_REUSEADDR"])
def test_a_held_port_is_not_given_out_when_all_others_are(reuse):
    """With ten ports in all and five of them held, the sixth caller is refused."""
    done = subprocess.run(
        ["unshare", "--net", sys.executable, "-c", WAYS + NARROW.format(reuse=reuse)],
        capture_output=True,
        check=False,
        text=True,
    )

    assert (done.stdout.strip(), done.stderr) == ("True set()", "")


@pytest.mark.parametrize(
    ("family", "address"),
    [
        pytest.param(socket.AF_INET, "", id="IPv4"),
        pytest.param(socket.AF_INET6, "::", id="IPv6 and IPv4"),
    ],
)
def test_a_store_can_listen_on_the_held_port(held, family, address):
    """With SO_REUSEADDR on both sides, and clients reach it."""
    number = port.number(held)
    with stream(family, reuse=True) as server, stream() as client:
        server.bind((address, number))
        server.listen()
        client.connect(("127.0.0.1", number))
        accepted, _ = server.accept()
        accepted.close()


def let_go():
    """Return the numbers of some ports that were held.

    Whoever asks the kernel for any port meanwhile may get one of them, but not all.
    """
    with contextlib.ExitStack() as stack:
        return [port.number(stack.enter_context(port.hold())) for _ in range(9)]


def test_the_port_is_free_once_it_is_let_go():
    """A later attempt, or another program, may have it."""
    had = []
    for number in let_go():
        with stream() as other, contextlib.suppress(OSError):
            other.bind(("", number))
            had.append(number)

    assert had


def test_the_port_that_was_asked_for_is_held():
    """--master-port gives every attempt the same one."""
    had = []
    for number in let_go():
        with contextlib.suppress(SpecError), port.hold(number) as again:
            had.append(port.number(again) == number)

    assert had
    assert all(had)


LISTENER = """
import socket, sys
family, reuse = socket.AddressFamily(int(sys.argv[1])), int(sys.argv[2])
server = socket.socket(family)
server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, reuse)
server.bind(("", 0))
server.listen()
print(server.getsockname()[1], flush=True)
server.accept()
"""


@pytest.mark.parametrize("reuse", [0, 1], ids=["plain", "SO_REUSEADDR"])
@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_who_has_the_port_is_named(family, reuse):
    """The refusal says who listens there, and what to do."""
    with subprocess.Popen(
        [sys.executable, "-c", LISTENER, str(int(family)), str(reuse)],
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        number = int(process.stdout.readline())
        name = Path(f"/proc/{process.pid}/comm").read_text().strip()
        with pytest.raises(SpecError) as refused:
            port.hold(number)
        process.kill()

    assert str(refused.value) == (
        f"cannot use port {number} for the ranks, because {name} (pid {process.pid}) "
        "holds it (give another --master-port, or none)"
    )


def test_a_holder_that_cannot_be_seen_is_said_so():
    """A socket that is bound and does not listen is in no list of the kernel's."""
    with stream() as other:
        other.bind(("", 0))
        with pytest.raises(SpecError, match="a process of another user or container"):
            port.hold(port.number(other))


UNPRIVILEGED = """
import os
from dsup.core.errors import SpecError
from dsup.edges import port
os.setuid(65534)
try:
    port.hold(1)
except SpecError as error:
    print(error)
"""


@pytest.mark.root
def test_a_port_that_is_forbidden_is_not_said_to_be_taken():
    """Below 1024 an ordinary user may not listen, whoever else does not either."""
    done = subprocess.run(
        [sys.executable, "-c", UNPRIVILEGED], capture_output=True, check=True, text=True
    )

    assert done.stdout.startswith(
        "cannot use port 1 for the ranks, because permission denied ("
    )


STORE = """
import sys
from datetime import timedelta
from torch.distributed import TCPStore
store = TCPStore(
    "127.0.0.1", int(sys.argv[1]), 1, is_master=True, wait_for_workers=False,
    timeout=timedelta(seconds=60), use_libuv={libuv},
)
store.set("key", "value")
print(store.get("key").decode())
"""


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.parametrize(
    "libuv",
    [
        pytest.param(True, id="libuv"),
        pytest.param(False, id="plain", marks=pytest.mark.soak),
    ],
)
def test_the_store_of_rank_0_listens_on_the_held_port(held, libuv):
    """Torch's own store, with either of its two servers, while the agent holds on."""
    done = subprocess.run(
        [sys.executable, "-c", STORE.format(libuv=libuv), str(port.number(held))],
        capture_output=True,
        check=False,
        text=True,
    )

    assert (done.returncode, done.stdout) == (0, "value\n"), done.stderr
