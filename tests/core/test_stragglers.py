"""Which ranks are slower than their peers, and when that is said."""

import pytest

from dsup.core.stragglers import Lag, observe

EVEN = {0: 0.1, 1: 0.1, 2: 0.1, 3: 0.1}
SLOW = {**EVEN, 2: 0.16}


def told(looks, reasons=None):
    """Return ``(time, news)`` of looks at step times, ``(from, to, step times)``."""
    lags: dict[int, Lag] = {}
    said = []
    for begin, end, steps_s in looks:
        for now_s in range(begin, end):
            lags, found = observe(lags, steps_s, float(now_s), reasons or {})
            said += [(now_s, one) for one in found]
    return said


def test_a_rank_that_stays_slow_is_named_once_with_the_reason():
    """After a minute, by how much, and why; and then it is quiet."""
    [(at_s, found)] = told([(0, 500, SLOW)], {2: "GPU 2 is throttled: heat"})

    assert at_s == 60
    assert (found.rank, found.times) == (2, pytest.approx(1.6))
    assert found.why == "GPU 2 is throttled: heat"


@pytest.mark.parametrize(
    "looks",
    [
        pytest.param([(0, 900, EVEN)], id="all alike"),
        pytest.param([(0, 900, {**EVEN, 2: 0.14})], id="a little slower"),
        pytest.param([(0, 50, SLOW), (50, 900, EVEN)], id="not for long"),
        pytest.param([(0, 900, {0: 0.1})], id="without peers"),
        pytest.param([(0, 900, {0: 0.0, 1: 5.0})], id="peers that take no time"),
        pytest.param([(0, 900, {0: 0.1, 1: 0.1, 2: 0.01})], id="one faster than all"),
    ],
)
def test_nobody_is_named_without_need(looks):
    """Less than the factor, less than the minute, or nothing to compare with."""
    assert told(looks) == []


def test_one_that_keeps_up_again_is_said_so_but_not_soon():
    """The next line on a rank comes ten minutes after the last."""
    said = told([(0, 100, SLOW), (100, 2000, EVEN)])

    assert [(at_s, one.times > 1) for at_s, one in said] == [(60, True), (660, False)]


def test_a_rank_at_the_edge_fills_no_journal():
    """However often it changes, there is one line in ten minutes."""
    looks = [(n, n + 90, SLOW if n // 90 % 2 else EVEN) for n in range(0, 3600, 90)]

    assert len(told(looks)) <= 6


def test_half_of_the_ranks_slow_names_the_slow_half():
    """With two kinds of nodes in a run the slower ones are slower than the median."""
    said = told([(0, 100, {0: 0.1, 1: 0.1, 2: 0.1, 3: 0.3, 4: 0.3})])

    assert [one.rank for _, one in said] == [3, 4]
