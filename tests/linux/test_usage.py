"""What a process takes of a processor and of memory."""

import os
import time

from dsup.linux import usage

PID_MAX = 1 << 22


def test_a_process_has_used_what_its_own_clock_says():
    """Processor time grows with work; a made-up time would not."""
    before = usage.read(os.getpid())
    while time.process_time() < before.cpu_s + 0.05:
        sum(range(10_000))
    after = usage.read(os.getpid())

    assert before.cpu_s <= time.process_time()
    assert after.cpu_s > before.cpu_s
    assert after.made_s == before.made_s <= time.clock_gettime(time.CLOCK_BOOTTIME)
    assert after.rss_kb > 1024


def test_of_a_process_that_has_gone_nothing_is_told():
    """It is no error: ranks end while one looks."""
    assert usage.read(PID_MAX) is None
