"""Stacks on their way to the judge: what is old or cut is not taken for the last."""

import pytest

from dsup.attribution.timeline import Hang, Timeline
from dsup.facts.stacks import Process, Taken, encode_process
from dsup.judging import Case, timeline

DUMP = b'Current thread 0x1 (most recent call first):\n  File "/t.py", line %d in f\n'


def taken(at_s, line):
    """Return the record of one rank at one moment."""
    return encode_process(Taken(at_s, Process(0, 7), "faulthandler", DUMP % line))


def judged(raw, since_s=20.0):
    """Return what the judge sees of stacks, for a hang since then."""
    hang = Hang((0,), "limit", 90.0, since_s)
    known = Timeline(0, 1, "n", 10.0, hang=hang)
    return timeline(Case(known, kernel_error="not read", stacks=raw))


def lines(processes):
    """Return the innermost line of each process."""
    return [process.main[0].line for process in processes]


@pytest.mark.parametrize(
    ("raw", "last", "before"),
    [
        pytest.param(b"", [], [], id="none"),
        pytest.param(taken(80.0, 5), [5], [], id="one"),
        pytest.param(taken(30.0, 4) + taken(80.0, 5), [5], [4], id="two"),
        pytest.param(taken(15.0, 4) + taken(80.0, 5), [5], [], id="before a step"),
        pytest.param(taken(30.0, 4) + taken(80.0, 5)[:-9], [4], [], id="cut"),
    ],
)
def test_the_last_stacks_and_those_before(raw, last, before):
    """Those before count only if they are of the same wait."""
    known = judged(raw)

    assert lines(known.stacks) == last
    assert lines(known.stacks_before) == before
    assert (known.stacks_s is None) is (not last)
