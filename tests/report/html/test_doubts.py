"""Hangs on the page: a mark on the row of each rank that seemed to hang."""

import pytest

from dsup.core import commands as cmd
from dsup.core import events as ev
from dsup.core import journal
from dsup.core.plan import Policy
from dsup.core.state import Spec
from dsup.report.account import account
from dsup.report.hindsight import from_journal
from dsup.report.html.moments import Seemed, moments
from dsup.report.html.page import render
from dsup.report.html.story import Run, Told, of_run
from dsup.report.html.timeline import whole_run

SPEC = Spec(3, 2.0, 25.0, False, Policy(1, (1.0,), 1800.0, False, False))
SUSPECTED = ev.HangSuspected("hang_suspected", 4.0, 0, (0, 2), "stalled", 3.0, 0.1)
FOUND = ev.Captured("captured", 4.2, 0, False, (1,), "all_reduce", "d.py:8 in r")
CLEARED = ev.HangCleared("hang_cleared", 5.0, 0, (0, 1, 2))
CONFIRMED = ev.HangConfirmed("hang_confirmed", 64.0, 0, (1,), "absent")


def lines_of(*items):
    """Return a journal of three ranks that dsup ended in the 70th second."""
    told = [
        ev.Launched("launched", 1.0),
        cmd.Prepare("prepare", 0),
        *(ev.RankStarted("rank_started", 1.0, 0, rank, 70 + rank) for rank in range(3)),
        *items,
        cmd.SignalRanks("signal_ranks", 0, (0, 1, 2), 15),
        *(ev.RankExited("rank_exited", 70.0, 0, 0, r, -15, ()) for r in range(3)),
        ev.GroupEmpty("group_empty", 70.1, 0),
    ]
    encoded = [journal.encode(n, item) for n, item in enumerate(told, 1)]
    return [journal.header(SPEC), *encoded]


@pytest.mark.parametrize(
    ("items", "seemed"),
    [
        pytest.param((), [], id="none"),
        pytest.param((SUSPECTED,), [Seemed(4.0, (0, 2))], id="suspected"),
        pytest.param((SUSPECTED, FOUND), [Seemed(4.0, (1,))], id="looked at"),
        pytest.param(
            (SUSPECTED, FOUND, CLEARED), [Seemed(4.0, (1,), 5.0)], id="went on"
        ),
        pytest.param(
            (SUSPECTED, CLEARED, FOUND, CONFIRMED),
            [Seemed(4.0, (0, 2), 5.0), Seemed(64.0, (1,))],
            id="again",
        ),
        pytest.param((FOUND, CLEARED), [], id="no suspicion"),
    ],
)
def test_since_when_and_who_it_was(items, seemed):
    """A suspicion begins when it was first said; the last look says of whom."""
    assert moments(lines_of(*items))[0].seemed == seemed


def test_not_every_suspicion_of_a_long_run_is_kept():
    """A run that stutters for a month fills no memory."""
    again = [item for _ in range(100) for item in (SUSPECTED, CLEARED)]

    assert len(moments(lines_of(*again))[0].seemed) == 64


def test_a_straggler_is_named_with_the_reason():
    """By how much it was slower at its worst, whether it kept up later or not."""
    lags = [
        ev.Straggles("straggles", 9.0, 0, 2, 1.6, ""),
        ev.Straggles("straggles", 19.0, 0, 2, 0.0, ""),
        ev.Straggles("straggles", 29.0, 0, 2, 2.4, "GPU 2 has 8 of 16 PCIe lanes"),
    ]

    assert moments(lines_of(*lags))[0].slow == {
        2: (2.4, "GPU 2 has 8 of 16 PCIe lanes")
    }


def test_the_row_of_who_seemed_to_hang_has_a_mark():
    """The mark lies in the row of that rank, and the key tells what it means."""
    lines = lines_of(SUSPECTED, FOUND, CONFIRMED, cmd.Capture("capture", 0, final=True))
    told = account(lines)
    run = Run(
        path="/runs/r1",
        known={},
        lines=lines,
        offset_s=0.0,
        told=[Told(from_journal(told, 0), "n1", "", (194, "dsup"))],
        outcome="the run was given up with exit code 194",
        made_s=90.0,
        dsup="0.1.0",
    )
    story = of_run(told, run)

    chart = whole_run(story)
    marks = [mark for mark in chart.marks if mark.kind == "still"]
    rows = sorted({bar.top + bar.height / 2 for bar in chart.bars})
    assert [mark.y for mark in marks] == [rows[1]]
    assert "seemed to hang" in render(story)
