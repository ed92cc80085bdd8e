"""The notifier, and the companion that it is: events in order, and nobody waits."""

import json
import subprocess
import sys
from textwrap import dedent

import pytest

pytestmark = pytest.mark.slow

PRELUDE = """
import json, os, signal, sys, time
from functools import partial
from dsup.edges import notifier
from dsup.edges.aide import Aides
from dsup.edges.companion import Companion
from dsup.edges.loop import Loop
from dsup.linux import libc, tree

libc.become_subreaper()
base, said = sys.argv[1], []
loop = Loop()
aides = Aides(loop)
script = os.path.join(base, "script.py")
log = os.path.join(base, "log")

def command(text, **more):
    with open(script, "w") as file:
        file.write("import os, sys, time\\nevent = sys.stdin.read()\\n" + text)
    words = (sys.executable, "-S", script, base)
    order = notifier.Order(words, dict(os.environ), **{"last_s": 500.0} | more)
    made = Companion("it", partial(notifier.run, order), aides, said.append, 0.05)
    made.start()
    return made

def turn_until(holds):
    end_s = time.monotonic() + 600
    while not holds():
        loop.turn(min(aides.deadline(), time.monotonic() + 0.02))
        aides.expire(time.monotonic())
        if time.monotonic() > end_s:
            sys.exit(f"it did not become so: {said} {lines()}")

def lines():
    try:
        return open(log).read().split()
    except FileNotFoundError:
        return []

def tell(**facts):
    print(json.dumps(facts))

NOTE = "open(sys.argv[1] + '/log', 'a').write(event + '\\\\n')\\n"
"""

DEATHS = """
made, pids = command(NOTE), []
for _ in range(3):
    turn_until(lambda: (made.look(time.monotonic()), made.pid)[1])
    pids.append(made.pid)
    os.kill(made.pid, signal.SIGKILL)
    turn_until(lambda: not made.pid)
turn_until(lambda: not aides.pids)
made.look(time.monotonic() + 99)
tell(different=len(set(pids)), said=said, now=made.pid, left=tree.alive())
"""

SLOW = '''
made = command("""
if event == "slow":
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
    time.sleep(100)
""" + NOTE, limit_s=2.0)
'''

FAILING = '''
made = command("""
print("x" * 1000000, file=sys.stderr)
sys.exit("no such channel \\x1b[31m")
""")
'''


@pytest.fixture
def drive(tmp_path):
    """Run a piece of Python that has a notifier; return the facts it tells."""

    def run(code):
        words = [sys.executable, "-c", PRELUDE + dedent(code), str(tmp_path)]
        done = subprocess.run(
            words, capture_output=True, check=False, text=True, timeout=600
        )
        assert (done.returncode, done.stderr) == (0, "")
        return json.loads(done.stdout)

    return run


def test_each_event_is_told_in_order_one_at_a_time(drive):
    """A command never runs beside another, and nobody had to wait for either."""
    found = drive("""
        both = "lock = sys.argv[1] + '/lock'\\nos.mkdir(lock)\\ntime.sleep(0.05)\\n"
        made = command(both + NOTE + "os.rmdir(lock)\\n")
        taken = [made.send(b".%d" % n) for n in range(5)]
        made.send(b"!last")
        made.end(100)
        turn_until(lambda: not aides.pids)
        tell(taken=taken, told=lines(), said=said, left=tree.alive())
    """)
    assert found["told"] == ["0", "1", "2", "3", "4", "last"]
    assert found["taken"] == [True] * 5
    assert (found["said"], found["left"]) == ([], [])


def test_a_command_that_takes_too_long_goes_with_all_it_started(drive):
    """A daemon of its own is found, too; the next event is told all the same."""
    found = drive(
        SLOW
        + """
made.send(b".slow")
made.send(b".next")
turn_until(lambda: lines() == ["next"])
below = tree.alive([made.pid])
made.end(100)
turn_until(lambda: not aides.pids)
tell(said=said, below=below, left=tree.alive())
"""
    )
    assert len(found["said"]) == 1
    assert found["said"][0].endswith("did not end in time and was killed")
    assert (found["below"], found["left"]) == ([], [])


def test_a_failure_is_told_with_its_last_words_and_not_for_ever(drive):
    """What it prints goes nowhere, however much that is; the third time is the last."""
    found = drive(
        FAILING
        + """
for n in range(5):
    made.send(b".%d" % n)
made.end(100)
turn_until(lambda: not aides.pids)
tell(said=said)
"""
    )
    assert len(found["said"]) == 3
    assert "ended with exit code 1: no such channel \\x1b[31m" in found["said"][0]
    assert found["said"][2].endswith("; more of this is not told")


def test_at_the_end_the_last_event_is_told_before_all_others(drive):
    """A command that hangs gets half of the time, and the end of the run the rest."""
    found = drive("""
        made = command("if event == 'slow': time.sleep(100)\\n" + NOTE, last_s=8.0)
        for event in (b".slow", b".one", b".two", b"!last"):
            made.send(event)
        made.end(100)
        turn_until(lambda: not aides.pids)
        tell(told=lines(), left=tree.alive(), said=said[-1])
    """)
    assert (found["told"], found["left"]) == (["last"], [])
    assert found["said"].endswith("was not run for 2 of the events")


def test_a_queue_that_is_too_long_loses_its_oldest(drive):
    """It is said once; the newest events are told."""
    found = drive("""
        gate = os.path.join(base, "gate")
        wait = "while not os.path.exists(sys.argv[1] + '/gate'): time.sleep(0.01)\\n"
        made = command(wait + NOTE)
        for n in range(100):
            turn_until(lambda: made.send(b".%d" % n))
        turn_until(lambda: said)
        open(gate, "w").close()
        turn_until(lambda: lines()[-1:] == ["99"])
        made.end(100)
        turn_until(lambda: not aides.pids)
        tell(told=lines(), said=said)
    """)
    assert 64 <= len(found["told"]) <= 66
    first, last = found["said"]
    assert first.endswith("takes too long: of 64 events the oldest go")
    untold = 100 - len(found["told"])
    assert last.endswith(f"was not run for {untold} of the events")


def test_one_that_dies_is_replaced_a_few_times(drive):
    """After the third death it is given up, in one line."""
    found = drive(DEATHS)

    assert (found["different"], found["now"], found["left"]) == (3, 0, [])
    assert found["said"] == ["it: given up, because the process died 3 times"]
