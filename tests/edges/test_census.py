"""The census: what real processes and their helpers have done since the last one."""

import os
import subprocess
import sys

import pytest

from dsup.edges.census import Census

pytestmark = pytest.mark.slow

OBEYS = """
import os, subprocess, sys, threading
print(flush=True)
def burn():
    spent = os.times().user
    while os.times().user < spent + 0.2: pass
def helper():
    return subprocess.Popen([sys.executable, "-c", sys.argv[1]], stdin=0, stdout=1)
for line in sys.stdin:
    if line == "burn\\n": burn()
    if line == "write\\n": os.write(2, b"." * 100)
    if line == "grow\\n": grown = bytearray(1 << 24)
    if line == "helper\\n": helper(); break
    if line == "thread\\n":
        threading.Thread(target=lambda: helper().wait()).start()
        break
    print(flush=True)
threading.Event().wait()
"""


@pytest.fixture
def rank(asleep):
    """Give a process that does what it is told, in whichever of its processes."""
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", OBEYS, OBEYS]
    process = subprocess.Popen(
        command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, process_group=0
    )
    process.stdout.readline()
    asleep(process.pid)
    yield process
    os.killpg(process.pid, 9)
    process.communicate()


@pytest.fixture
def told(asleep):
    """Have a process do things, and wait until it has done them."""

    def do(process, *words):
        for word in words:
            process.stdin.write(f"{word}\n".encode())
            process.stdin.flush()
            process.stdout.readline()
            asleep(process.pid)

    return do


def answer_of(census, *, close):
    """Return what a census finds of the one rank."""
    return census.take([0], close=close)[0]


def test_the_first_census_tells_nothing(rank):
    """What a rank did before is nobody's business."""
    work = answer_of(Census({0: rank.pid}), close=False)

    assert (work.cpu_s, work.wrote) == (0.0, False)


def test_processor_time_and_output_are_told_apart(rank, told):
    """Each since the census before."""
    census = Census({0: rank.pid})
    census.take([0], close=False)

    assert not answer_of(census, close=False).wrote
    told(rank, "write")
    assert answer_of(census, close=False).wrote
    told(rank, "burn")
    assert answer_of(census, close=False).cpu_s >= 0.1
    assert answer_of(census, close=False).cpu_s < 0.1


@pytest.mark.parametrize(("how", "close"), [("helper", False), ("thread", True)])
def test_what_a_helper_does_is_the_ranks_doing(rank, told, how, close):
    """One of another thread than the main one is seen by a close census."""
    census = Census({0: rank.pid})
    told(rank, how)  # the helper says that it runs
    census.take([0], close=close)

    told(rank, "burn")

    assert answer_of(census, close=close).cpu_s >= 0.1


def test_a_helper_that_has_ended_counts_by_its_parent(told):
    """As soon as that has collected it."""
    script = """
import os, sys
print(flush=True)
sys.stdin.readline()
if os.fork() == 0:
    while os.times().user < 0.2: pass
    os._exit(0)
os.wait()
print(flush=True)
sys.stdin.readline()
"""
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe) as process:
        process.stdout.readline()
        census = Census({0: process.pid})
        census.take([0], close=False)
        told(process, "go")

        assert answer_of(census, close=False).cpu_s >= 0.1
        process.communicate(b"\n")


def test_a_rank_that_has_gone_is_left_out(rank):
    """Dead but not collected."""
    census = Census({0: rank.pid})
    census.take([0], close=False)
    rank.kill()
    os.waitid(os.P_PID, rank.pid, os.WEXITED | os.WNOWAIT)

    assert census.take([0], close=True) == {}


def test_memory_and_helpers_that_are_new_are_seen(rank, told):
    """Whoever only spins has neither."""
    census = Census({0: rank.pid})
    told(rank, "burn")  # what it needs for that is there then
    census.take([0], close=True)

    told(rank, "burn")
    spins = answer_of(census, close=True)
    told(rank, "grow")
    grown = answer_of(census, close=True)
    told(rank, "helper")
    helped = answer_of(census, close=True)

    assert [one.joined for one in (spins, grown, helped)] == [False, False, True]
    assert grown.faults > spins.faults


def test_what_a_rank_was_asked_to_write_is_forgiven(rank, told):
    """The processor time that it has used meanwhile still counts."""
    census = Census({0: rank.pid})
    census.take([0], close=False)

    told(rank, "burn", "write")
    census.forgive()
    work = answer_of(census, close=False)

    assert (work.wrote, work.cpu_s >= 0.1) == (False, True)


def test_unknown_output_is_taken_for_output():
    """Of a process whose account may not be read nobody can say that it is silent."""
    if os.geteuid() == 0:
        pytest.skip("root may read everybody's")
    assert answer_of(Census({0: 1}), close=False).wrote
