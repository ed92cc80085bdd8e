"""What of a census is a sign of work, and what may be a hang all the same."""

import pytest

from dsup.core.activity import Active, Work, last_s, seen

BEFORE = {0: Active(1.0, 2.0)}


@pytest.mark.parametrize(
    ("work", "busy", "lively"),
    [
        pytest.param(Work(0.05, wrote=False), False, False, id="watchdog threads"),
        pytest.param(Work(0.0, wrote=True), True, True, id="output"),
        pytest.param(Work(0.0, wrote=False, joined=True), True, True, id="a helper"),
        pytest.param(Work(2.5, wrote=False), True, True, id="half a processor"),
        pytest.param(Work(4.9, wrote=False), True, False, id="a rank that spins"),
        pytest.param(Work(4.9, wrote=False, faults=40), True, False, id="few faults"),
        pytest.param(Work(4.9, wrote=False, faults=900), True, True, id="a compiler"),
        pytest.param(Work(9.8, wrote=True), True, True, id="one that prints"),
    ],
)
def test_what_a_rank_does_in_five_seconds(work, busy, lively):
    """Whoever does anything is busy; whoever does more than spin is lively."""
    found = seen(BEFORE, {0: work}, 5.0, 50.0)

    assert found == {0: Active(50.0 if busy else 1.0, 50.0 if lively else 2.0)}


def test_on_an_overloaded_node_whoever_spins_waits_for_a_processor():
    """It would use a whole one."""
    half = {0: Work(2.5, wrote=False, queued_s=2.4)}

    assert seen(BEFORE, half, 5.0, 50.0)[0] == Active(50.0, 2.0)


def test_before_the_first_census_anything_may_have_been():
    """Nobody has looked."""
    assert seen({}, {3: Work(0.0, wrote=False)}, None, 9.0) == {3: Active(9.0, 9.0)}


def test_a_rank_may_wait_for_others_that_work_but_not_for_those_that_spin():
    """Those that wait for it spin, and are no reason for it."""
    active = {0: Active(9.0, 1.0), 1: Active(3.0, 2.0)}

    assert last_s(active, 1) == 3.0
    assert last_s(active, 0) == 9.0
    assert last_s({0: Active(9.0, 8.0), 1: Active(3.0, 2.0)}, 1) == 8.0
    assert last_s({}, 1) is None
