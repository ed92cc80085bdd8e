"""The loop: what became ready first is handled first, and lateness is told."""

import os
import select
import signal
import subprocess
import sys
import time
from functools import partial

import pytest

from dsup.edges.loop import Loop
from dsup.linux import proc


@pytest.fixture
def pipes():
    """Make pipes; those still open are closed after the test."""
    made = []

    def make():
        made.append(os.pipe())
        return made[-1]

    yield make
    for pair in made:
        for fd in pair:
            try:
                os.close(fd)
            except OSError:
                continue


def soon():
    """Return the latest end of a turn that should not wait."""
    return time.monotonic() + 600


def test_handlers_run_in_the_order_of_readiness(pipes):
    """Not in the order of registration, nor of numbers: 20 times in a row."""
    for turn in range(20):
        loop, order = Loop(), list[int]()
        ends = [pipes() for _ in range(6)]
        for read, _ in ends:
            loop.watch(read, partial(order.append, read))
        expected = ends[turn % 6 :: -1] + ends[: turn % 6 : -1]
        for _, write in expected:
            os.write(write, b"x")
        loop.turn(soon())

        assert order == [read for read, _ in expected]


def test_what_stays_ready_is_handled_in_every_turn(pipes):
    """The loop is level-triggered: a handler need not take everything at once."""
    loop, calls = Loop(), []
    read, write = pipes()
    loop.watch(read, lambda: calls.append(os.read(read, 1)))
    os.write(write, b"ab")
    loop.turn(soon())
    loop.turn(soon())

    assert calls == [b"a", b"b"]


def test_a_descriptor_dropped_in_the_same_turn_is_not_handled(pipes):
    """A handler may let go of others that are ready, too."""
    loop, calls = Loop(), []
    (first, write_first), (second, write_second) = pipes(), pipes()

    def drop_second():
        calls.append("first")
        loop.unwatch(second)
        os.close(second)

    loop.watch(first, drop_second)
    loop.watch(second, lambda: calls.append("second"))
    os.write(write_first, b"x")
    os.write(write_second, b"x")
    loop.turn(soon())

    assert calls == ["first"]


def test_a_number_given_to_another_in_the_same_turn_is_not_handled(pipes):
    """A new descriptor of the same number is not ready because the old one was."""
    loop, calls = Loop(), []
    (first, write_first), (second, write_second) = pipes(), pipes()

    def replace_second():
        loop.unwatch(second)
        quiet = pipes()[0]
        os.dup2(quiet, second)
        loop.watch(second, lambda: calls.append("the new one"))

    loop.watch(first, replace_second)
    loop.watch(second, lambda: calls.append("the old one"))
    os.write(write_first, b"x")
    os.write(write_second, b"x")
    loop.turn(soon())

    assert calls == []


def test_a_handler_can_be_replaced(pipes):
    """Watching a descriptor again changes what is called."""
    loop, calls = Loop(), []
    read, write = pipes()
    loop.watch(read, lambda: calls.append("old"))
    loop.watch(read, lambda: calls.append("new"))
    os.write(write, b"x")
    loop.turn(soon())

    assert calls == ["new"]


def test_forgetting_twice_is_no_error(pipes):
    """Whoever cleans up need not know who did so before."""
    loop, calls = Loop(), []
    read, write = pipes()
    loop.watch(read, lambda: calls.append("never"))
    loop.unwatch(read)
    loop.unwatch(read)
    os.write(write, b"x")
    loop.turn(time.monotonic())

    assert calls == []


@pytest.mark.parametrize(
    "wait_s",
    [pytest.param(0.03, id="in a while"), pytest.param(-10, id="long ago")],
)
def test_a_turn_ends_when_its_time_has_come(wait_s):
    """Not before, and without a descriptor."""
    loop = Loop()
    until_s = time.monotonic() + wait_s
    overdue_s = loop.turn(until_s)

    assert time.monotonic() >= until_s
    assert overdue_s < 60


def test_a_turn_without_an_end_waits_for_a_descriptor(pipes):
    """A loop that has nothing due sleeps until something is ready."""
    loop, calls = Loop(), []
    read, write = pipes()
    loop.watch(read, lambda: calls.append("x"))
    os.write(write, b"x")
    overdue_s = loop.turn(float("inf"))

    assert calls == ["x"]
    assert overdue_s == 0


def test_the_time_spent_in_handlers_makes_the_next_turn_late(pipes):
    """What became ready meanwhile may have done so from the last look on."""
    loop, late = Loop(), []
    (slow, write_slow), (other, write_other) = pipes(), pipes()

    def take_a_while():
        began_s = time.monotonic()
        loop.unwatch(slow)
        os.write(write_other, b"x")
        while time.monotonic() < began_s + 0.05:
            os.sched_yield()

    loop.watch(slow, take_a_while)
    loop.watch(other, lambda: late.append(loop.late_s))
    os.write(write_slow, b"x")
    loop.turn(soon())
    loop.turn(soon())

    assert late[-1] >= 0.05


STOPPED = """
import os, sys, time
from dsup.edges.loop import Loop
loop = Loop()
read, write = os.pipe()
seen = []
loop.watch(read, lambda: seen.append(loop.late_s))
until_s = time.monotonic() + float(sys.argv[1])
print(until_s, flush=True)
loop.turn(0.0)  # however long it took to get here
overdue_s = loop.turn(until_s)
os.write(write, b"x")
print(overdue_s >= 0.3, loop.late_s == overdue_s, flush=True)
"""


@pytest.mark.slow
def test_a_loop_that_was_held_up_between_two_turns_says_so_too():
    """It does not matter where in its turn the agent lost the time."""
    loop = Loop()
    loop.turn(0.0)
    select.select([], [], [], 0.3)

    assert loop.turn(0.0) >= 0.3


def stopped(turn_s):
    """Return what a loop says that is stopped in a turn, and goes on after its end.

    Nothing is said of a turn that was over before it could be stopped.
    """
    command = [sys.executable, "-c", STOPPED, str(turn_s)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        until_s = float(process.stdout.readline())
        while proc.stat(process.pid).state not in "SZ":
            os.sched_yield()
        process.send_signal(signal.SIGSTOP)
        how = os.WSTOPPED | os.WEXITED | os.WNOWAIT
        os.waitid(os.P_PID, process.pid, how)
        in_time = time.monotonic() < until_s
        select.select([], [], [], max(0.0, until_s + 0.5 - time.monotonic()))
        process.send_signal(signal.SIGCONT)
        return process.stdout.readline() if in_time else ""


@pytest.mark.slow
def test_a_loop_that_was_stopped_says_by_how_much_it_woke_too_late():
    """A frozen agent must know that it missed time: every limit starts again."""
    said = next(filter(None, map(stopped, (2, 20, 200))))

    assert said == "True True\n"
