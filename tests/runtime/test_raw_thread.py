"""Threads of the runtime's own are over before the interpreter is taken down."""

import subprocess
import sys
import threading

import pytest

from dsup_runtime.raw_thread import RawThread

LATE = """
import signal, sys
from dsup_runtime.lifecycle.alarm import Alarm
from dsup_runtime.lifecycle.grace import Grace
sys.setswitchinterval(1000)  # no other thread runs before the main one waits
def seen(kind):
    class Seen(kind):
        def _watch(self, told):
            super()._watch(told)
            print("left", flush=True)
    return Seen
"""
ALARM = """
alarm = seen(Alarm)([signal.SIGTERM], print)
alarm.set()
alarm.lift()
print("end")
"""
GRACE = """
grace = seen(Grace)(print)
grace.begin(600)
grace.end()
print("end")
"""


@pytest.mark.parametrize("script", [ALARM, GRACE], ids=["alarm", "grace"])
def test_a_watcher_that_is_told_to_leave_is_waited_for(script):
    """Else it may begin when the interpreter ends, which is a crash of the rank's."""
    done = subprocess.run(
        [sys.executable, "-c", LATE + script],
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, "left\nend\n", "")


def test_an_end_is_seen_as_often_as_one_looks():
    """Until then a look costs its limit and says no."""
    go_on = threading.Event()
    thread = RawThread(go_on.wait)

    assert not thread.ended_within(0.01)
    go_on.set()
    assert thread.ended_within(600)
    assert thread.ended_within(0)
