"""Stacks on their way to the judge: what is old or cut is not taken for the last."""

import pytest

from dsup.attribution.timeline import Hang, Timeline
from dsup.facts import flight_recorder
from dsup.facts.flight_recorder import Trace
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


@pytest.mark.parametrize(
    ("times_s", "last", "before"),
    [
        pytest.param((), [], [], id="none"),
        pytest.param((80.0,), [80.0], [], id="with the last stacks"),
        pytest.param((30.0, 80.0), [80.0], [30.0], id="two"),
        pytest.param((15.0, 80.0), [80.0], [], id="before a step"),
        pytest.param((30.0,), [], [30.0], id="none with the last stacks"),
    ],
)
def test_traces_belong_to_the_stacks_of_their_moment(times_s, last, before):
    """Numbers of another moment would not be those of what stacks show."""
    hang = Hang((0,), "limit", 90.0, 20.0)
    known = Timeline(0, 1, "n", 10.0, hang=hang)
    raw = flight_recorder.encode(Trace(0, at_s=at_s) for at_s in times_s)
    case = Case(known, kernel_error="not read", stacks=taken(80.0, 5), traces=raw)
    judged_of = timeline(case)

    assert [one.at_s for one in judged_of.traces.values()] == last
    assert [one.at_s for one in judged_of.traces_before.values()] == before
