"""What a real process has written, but for what it was asked for."""

import subprocess
import sys

import pytest

from dsup.linux.written import Written

TALKS = "import sys\nprint(flush=True)\nfor line in sys.stdin: print(line, flush=True)"


@pytest.fixture
def talk(asleep):
    """Give the pid of a process, and ``say()``, which has it write something."""
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", TALKS]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe) as process:
        process.stdout.readline()
        asleep(process.pid)

        def say():
            process.stdin.write(b"on\n")
            process.stdin.flush()
            process.stdout.readline()
            process.stdout.readline()
            asleep(process.pid)

        yield process.pid, say
        process.kill()


def test_what_was_asked_for_does_not_count(talk):
    """Neither while it is written nor later; what comes after does."""
    pid, say = talk
    written = Written({3: pid})
    first = written.by(3)

    written.deaf = True
    say()
    during = written.by(3)
    say()
    written.listen()
    after = written.by(3)
    say()

    assert first == during == after
    assert (written.by(3) or 0) > (first or 0)
    written.close()


def test_of_a_process_that_has_gone_nothing_is_known(talk):
    """Neither of one that was never there."""
    written = Written({0: talk[0]})
    assert written.by(0) is not None
    written.close()

    assert written.by(0) is None
    assert written.by(1) is None
