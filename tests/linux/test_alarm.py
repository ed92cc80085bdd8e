"""Work that is cut short."""

import signal
import time

import pytest

from dsup.linux.alarm import cut_at


def test_work_that_never_ends_is_cut():
    """What it has found by then is kept, and the signal is as it was."""
    found = []
    before = signal.getsignal(signal.SIGALRM)

    def work():
        found.append(1)
        while True:
            time.monotonic()

    assert not cut_at(time.monotonic() + 1, work)
    assert found
    assert signal.getsignal(signal.SIGALRM) is before


def test_work_that_ends_is_left_alone():
    """No alarm comes afterwards."""
    assert cut_at(time.monotonic() + 3600, lambda: None)
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_a_moment_that_has_passed():
    """The work is begun, and interrupted at once."""

    def work():
        while True:
            time.monotonic()

    assert not cut_at(time.monotonic() - 1, work)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_alarm_that_a_finalizer_swallows_comes_again():
    """What is raised there is told and dropped, and the work went on for ever."""

    class Lasting:
        def __del__(self):
            while True:
                time.monotonic()

    def work():
        Lasting()
        while True:
            time.monotonic()

    assert not cut_at(time.monotonic() + 0.1, work)
