"""Drivers: processes that may adopt, kill and be killed, as pytest may not."""

import json
import os
import subprocess
import sys
from textwrap import dedent

import pytest

MEASURED_BY = ("COVERAGE_PROCESS_CONFIG", "COVERAGE_PROCESS_START")
PRELUDE = """
import json, os, resource, select, signal, subprocess, sys
import threading, time
from dsup.linux import libc, proc, signals, tree

def until(holds):
    for _ in range(12_000):
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
    return select.select([fd], [], [], 60)[0] == [fd] and os.read(fd, 1) == b""

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
