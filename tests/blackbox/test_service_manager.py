"""What a service manager hears of a run, and when."""

import secrets
import signal
import socket

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


def test_a_stop_is_told_while_the_ranks_still_end(run, proc):
    """At once, with the time it may take: no limit of the manager's ends it sooner."""
    made, script = run.base / "made", run.files / "patient.py"
    script.write_text(PATIENT)
    name = f"dsup-test-{secrets.token_hex(4)}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ours:
        ours.bind(f"\0{name}")
        ours.settimeout(20)
        manager = {"NOTIFY_SOCKET": f"@{name}", "MADE": str(made)}
        run.start("--nproc 1 --shutdown-timeout 40", script=script, env=manager)
        proc.until(made.exists, 20, "no rank")
        told = [ours.recv(4096).decode()]
        assert "READY=1" in told[0]
        run.signal(signal.SIGTERM)
        while "STOPPING=1" not in told[-1]:
            told.append(ours.recv(4096).decode())
        lines = dict(line.split("=", 1) for line in told[-1].splitlines())
        assert run.processes()  # the rank waits for this test
        made.unlink()

        assert int(lines["EXTEND_TIMEOUT_USEC"]) >= 45_000_000
        assert run.ended(20) == 143, run.console()
