"""Drivers: processes that may adopt, kill and be killed, as pytest may not."""

import json
import os
import select
import subprocess
import sys
import time
from pathlib import Path
from textwrap import dedent

import pytest

LIMIT_S = 600
MEASURED_BY = ("COVERAGE_PROCESS_CONFIG", "COVERAGE_PROCESS_START")
PRELUDE = """
import json, os, resource, select, signal, subprocess, sys
import threading, time
from dsup.linux import libc, proc, signals, tree

def until(holds):
    for _ in range(120_000):
        if holds():
            return
        select.select([], [], [], 0.005)
    sys.exit("it did not become so")

def start(*argv):
    # Return the pid that a program tells, and a descriptor that ends with the program.
    read, write = os.pipe()
    null = subprocess.DEVNULL
    subprocess.Popen(argv, stdout=write, stdin=null, stderr=null)
    os.close(write)
    return int(os.read(read, 20)), read

def ended(fd):
    return select.select([fd], [], [], 600)[0] == [fd] and os.read(fd, 1) == b""

def tell(**facts):
    print(json.dumps(facts), flush=True)

"""


@pytest.fixture
def drive():
    """Run a piece of Python in a process of its own; return the facts it tells."""

    def run(code, *arguments, wrap=(), env=os.environ, poor=False):
        """A poor driver gives up rights that coverage would need to measure it."""
        code = PRELUDE + dedent(code)
        done = subprocess.run(
            [*wrap, sys.executable, "-c", code, *map(str, arguments)],
            capture_output=True,
            check=False,
            env={k: v for k, v in env.items() if k not in MEASURED_BY * poor},
            text=True,
            timeout=600,
        )
        assert (done.returncode, done.stderr) == (0, "")
        return json.loads(done.stdout)

    return run


@pytest.fixture
def asleep():
    """Wait until a process has done all that it was about to do, and sleeps.

    Whoever reads its last word from a pipe may be sooner than the kernel's account of
    that, and sooner than what comes next in a script.
    """

    def wait(pid):
        status, until_s = Path(f"/proc/{pid}/status"), time.monotonic() + LIMIT_S
        while "\nState:\tS" not in status.read_text(errors="replace"):
            assert time.monotonic() < until_s, "it does not sleep"
            select.select([], [], [], 0.005)

    return wait
