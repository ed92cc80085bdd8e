"""Hostile logs: any lines give an answer, in bounded memory and linear time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsup.facts.logs.extract import attempt
from dsup.facts.logs.line import LogLine, Place
from dsup.facts.logs.said import LoggedAttempt


def read(*texts: str | tuple[int, str]) -> LoggedAttempt:
    """Return what lines tell; a pair is a line that torch marked with its rank."""
    lines = []
    for order, text in enumerate(texts):
        rank, said = text if isinstance(text, tuple) else (None, text)
        ranked = rank is not None
        lines.append(
            LogLine(said, Place(rank), "job.log", order + 1, order, ranked=ranked)
        )
    return attempt(lines, 0)


PIECES = (
    "Traceback (most recent call last):",
    '  File "/a/b.py", line 3, in f',
    "    raise X(",
    "ValueError: no",
    ": torn",
    "a.b.XErrora.b.XError.: ",
    "During handling of the above exception, another exception occurred:",
    "-- Process 1 terminated with the following error:",
    "[0]:",
    "  rank      : 8 (local_rank: 0)",
    "  exitcode  : -11 (pid: 411)",
    "Root Cause (first observed failure):",
    "srun: error: n1: tasks 0-99999999: Killed",
    "  Process name: [[4,1],5]",
    "[Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=3)",
    "CollectiveFingerPrint(",
    "x opCount 2a count 3 comm",
    "step 9",
    "KeyboardInterrupt",
    "",
    "ray::W.f() (pid=7, ip=1.2.3.4)",
    "Original Traceback (most recent call last):",
)
LINES = st.one_of(
    st.sampled_from(PIECES),
    st.text(max_size=60),
    st.tuples(st.integers(0, 3), st.sampled_from(PIECES)),
)


@pytest.mark.slow
@given(st.lists(LINES, max_size=40))
def test_any_lines_give_an_answer(texts: list[str | tuple[int, str]]) -> None:
    """Facts come in the order of their lines, and of no rank that nobody named."""
    found = read(*texts)
    for facts in (found.errors, found.ends, found.complaints, found.collectives):
        orders = [fact.order for fact in facts]
        assert orders == sorted(orders)


def test_long_lines_cost_no_more_than_their_length() -> None:
    """Nothing that a line repeats makes a pattern try again from every place."""
    for piece in (
        "rank ",
        "a.",
        "[",
        "ray::",
        "(pid=",
        "1,",
        "Error:",
        "mpirun -",
        "=",
    ):
        found = read(piece * (16_384 // len(piece)))
        assert found.first_line == 0


@pytest.mark.slow
def test_many_facts_are_kept_to_a_bound() -> None:
    """Of a log that repeats itself the first and the last facts are kept."""
    found = read(*["ValueError: no", ""] * 6000)
    assert len(found.errors) == 4000
    assert found.errors[0].order == 0
    assert found.errors[-1].order == 11_998


def test_a_line_whose_shape_told_nothing_before_may_tell_later() -> None:
    """Lines that differ in a number only are read where the number counts."""
    found = read("    Exit code:    100", "    Exit code:    137", "step 1", "step 2")
    assert [end.status for end in found.ends] == [-9]
    assert found.progress[-1].step == 2
