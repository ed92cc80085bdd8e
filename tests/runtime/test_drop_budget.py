"""``DropBudget``: how many dropped batches are told of, and how many are too many."""

import math

import pytest

from dsup_runtime.numerics.drop_budget import DropBudget, DropLimits, Overdrawn


def findings(drops, attempts, **limits):
    """Return what a budget says, by attempt, if the attempts in ``drops`` drop."""
    budget = DropBudget(DropLimits(**limits))
    told = {at: budget.count(dropped=at in drops) for at in range(1, attempts + 1)}
    return {at: finding for at, finding in told.items() if finding is not None}


@pytest.mark.parametrize(
    ("drops", "attempts", "stops_at"),
    [
        pytest.param({50}, 100, None, id="1 in 100: too early to tell"),
        pytest.param({10, 20, 30}, 2000, 1000, id="3 early ones: at the first look"),
        pytest.param(
            {10, 1100, 1990}, 2000, 1100, id="3 spread in 2000: at the second"
        ),
        pytest.param({1000}, 2000, None, id="1 in 1000: just within"),
        pytest.param({1, 2000}, 2000, None, id="2 in 2000: just within"),
        pytest.param({999, 1000}, 1000, 1000, id="2 in 1000: above"),
        pytest.param(set(), 5000, None, id="none"),
    ],
)
def test_above_a_thousandth_it_stops_after_enough_attempts(drops, attempts, stops_at):
    """More than 0.1 % is too much, judged from the thousandth attempt on."""
    told = findings(drops, attempts)

    stops = [at for at, finding in told.items() if finding.limit == "stop"]
    assert stops == ([] if stops_at is None else [stops_at])


def test_it_stops_once():
    """Further drops above the limit are not told again: the run ends anyway."""
    told = findings(set(range(1, 3000)), 3000)

    assert [finding.limit for finding in told.values()] == ["warn", "stop"]


def test_only_the_last_attempts_count():
    """What was dropped before the window is forgotten."""
    limits = {"window": 100, "min_attempts": 10, "stop": 0.02}

    within = findings({110, 160, 209}, 300, **limits)
    assert within[209] == Overdrawn("stop", 3, 100)
    assert 210 not in findings({110, 160, 210}, 300, **limits)


def test_a_warning_comes_again_after_the_share_was_within_the_limit():
    """Each excursion above the limit is told once."""
    limits = {"window": 100, "min_attempts": 100, "warn": 0.015, "stop": 1.0}

    assert findings({60, 61, 80, 250, 251}, 300, **limits).keys() == {60, 251}


def test_counts_are_told_until_a_share_means_something():
    """Below 10,000 attempts one drop is more than 0.01 %, so no share is told."""
    few = str(Overdrawn("warn", 1, 57))
    many = str(Overdrawn("warn", 12, 10_000))

    assert few == "1 of the last 57 batches were dropped"
    assert many == "12 of the last 10000 batches were dropped (0.12%)"


@pytest.mark.parametrize(
    ("limits", "why"),
    [
        pytest.param({"warn": math.nan}, "cannot set drop_warn to nan", id="nan"),
        pytest.param({"stop": -0.1}, "cannot set drop_stop to -0.1", id="negative"),
        pytest.param({"stop": 1.5}, "it is no share", id="above all"),
        pytest.param({"min_attempts": 0}, "not from 1 to", id="no attempts"),
        pytest.param({"window": 10}, "not from 1 to the window of 10", id="never"),
        pytest.param({"window": math.nan}, "the window of nan", id="window nan"),
    ],
)
def test_what_cannot_be_a_limit_is_refused(limits, why):
    """A limit that would never or always be passed is a mistake of the caller."""
    with pytest.raises(ValueError, match=why):
        DropLimits(**limits)
