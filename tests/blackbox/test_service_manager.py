"""What a service manager hears of a run, and when."""

import secrets
import signal
import socket
import struct

import pytest

pytestmark = pytest.mark.slow

PATIENT = """
import os, pathlib, signal, time
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
pathlib.Path(os.environ["MADE"]).touch()
signal.sigwait([signal.SIGTERM])
while pathlib.Path(os.environ["MADE"]).exists():
    time.sleep(0.02)
"""


def fill(address):
    """Make a socket's queue full, as a manager that is busy does."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
        other.setblocking(False)
        for _ in range(100_000):
            try:
                other.sendto(b"X=1", address)
            except BlockingIOError:
                return
    pytest.fail("the queue takes everything")


def heard(ours, word):
    """Return the next message that has a word, and the pid of its sender."""
    message, sender = "", b""
    while word not in message:
        data, ((_, _, sender),), _, _ = ours.recvmsg(4096, socket.CMSG_SPACE(12))
        message = data.decode()
    return message, struct.unpack("3i", sender)[0]


def test_a_stop_is_told_while_the_ranks_still_end(run, proc):
    """At once, with the time it may take: no limit of the manager's ends it sooner.

    Only the main process speaks, and what a busy manager did not take is told later.
    """
    made, script = run.base / "made", run.files / "patient.py"
    script.write_text(PATIENT)
    name = f"dsup-test-{secrets.token_hex(4)}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ours:
        ours.bind(f"\0{name}")
        ours.settimeout(600)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        fill(f"\0{name}")
        manager = {"NOTIFY_SOCKET": f"@{name}", "MADE": str(made)}
        run.start("--nproc 1 --shutdown-timeout 400", script=script, env=manager)
        proc.until(made.exists, 600, "no rank")
        _, ready_from = heard(ours, "READY=1")
        run.signal(signal.SIGTERM)
        told, stopping_from = heard(ours, "STOPPING=1")
        assert {ready_from, stopping_from} == {run.process.pid}
        lines = dict(line.split("=", 1) for line in told.splitlines())
        assert run.processes()  # the rank waits for this test
        made.unlink()

        assert int(lines["EXTEND_TIMEOUT_USEC"]) >= 405_000_000
        assert run.ended() == 143, run.console()
