"""What the agent lays in for bad times, and what it does once they have come."""

import json
import subprocess
import sys

import pytest

HEAD = """
import errno, json, os, resource, sys
from dsup.provision import AFTER_S, AGAIN_S, HELD, MODULES, Provision

def exhaust():
    os.close(free := os.dup(0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, HARD))

HARD = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
laid = Provision()
"""


@pytest.fixture
def told():
    """Give ``told(body)``: what a process prints that lays in."""

    def run(body):
        done = subprocess.run(
            [sys.executable, "-c", HEAD + body],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=True,
        )
        return json.loads(done.stdout)

    return run


@pytest.mark.slow
def test_nothing_is_imported_before_the_ranks_have_started(told):
    """And then in turns, each of which is short, until everything is there."""
    before, turns, missing = told(
        """
laid.look(1e9)
before = any(name in sys.modules for name in MODULES if name.startswith("dsup."))
laid.started(100.0)
turns = 0
while laid.due_s < 1e9:
    laid.look(100.0 + AFTER_S)
    turns += 1
missing = [name for name in MODULES if name not in sys.modules]
print(json.dumps([before, turns - len(MODULES), missing]))
"""
    )

    assert (before, turns, missing) == (False, 0, [])


@pytest.mark.slow
def test_a_module_that_cannot_be_opened_is_tried_again(told):
    """Descriptors may be there again, some time later."""
    due_s, later_s = told(
        """
laid.started(100.0)
exhaust()
laid.look(100.0 + AFTER_S)
due_s = laid.due_s - AFTER_S - AGAIN_S
resource.setrlimit(resource.RLIMIT_NOFILE, (HARD, HARD))
laid.look(laid.due_s)
print(json.dumps([due_s, laid.due_s - AFTER_S - AGAIN_S]))
"""
    )

    assert (due_s, later_s) == (100.0, 100.0)


def test_what_is_held_can_be_had_when_it_is_spent(told):
    """No more and no less; and it can be held again."""
    free = told(
        """
exhaust()
free = []
for step in (bool, laid.spend, laid.hold):
    step()
    free.append(0)
    taken = []
    try:
        while True:
            taken.append(os.dup(0))
            free[-1] += 1
    except OSError as error:
        assert error.errno == errno.EMFILE
    for fd in taken:
        os.close(fd)
print(json.dumps([free, HELD]))
"""
    )

    assert free == [[0, 16, 0], 16]
