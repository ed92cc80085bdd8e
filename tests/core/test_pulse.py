"""What moves the pulse of a rank, and what is learned of it."""

import pytest

from dsup.core.limits import Limits
from dsup.core.patience import limit_of
from dsup.core.pulse import Look, looked_at


def seen(*looks):
    """Return the pulse after looks, one a second."""
    pulse = None
    for now_s, look in enumerate(looks, 1):
        pulse = looked_at(pulse, look, float(now_s))
    return pulse


def told(now_s, phase, step=None, progress_s=None):
    return Look(0, "S", 0.0, step, now_s, progress_s, phase)


def test_a_step_that_is_no_number_is_a_step():
    """``beat("e3")`` moves the time of the last step alone."""
    pulse = seen(*(told(s, "train", None, s - 0.5) for s in range(1, 9)))

    assert pulse.since_s == 7.5
    assert pulse.usual_s == pytest.approx(1.0)


def test_the_same_step_again_is_life_but_no_step_to_learn_from():
    """As where every part of an accumulated batch is told."""
    pulse = seen(*(told(s, "train", 7, s - 0.5) for s in range(1, 9)))

    assert (pulse.since_s, pulse.usual_s) == (7.5, None)


def test_a_rank_that_tells_phases_only_has_no_limit_between_them():
    """It never beats, so nobody knows what its steps are; its phases have limits."""
    init, evals = told(1, "init"), told(2, "eval")

    assert limit_of(seen(init), Limits()) == Limits().init_s
    assert limit_of(seen(init, evals), Limits()) == Limits().eval_s
    assert limit_of(seen(init, evals, told(3, "init")), Limits()) is None
    assert limit_of(seen(init, evals, told(3, "init")), Limits(unseen_s=60.0)) == 60.0


def test_a_phase_too_short_to_be_seen_is_life():
    """Its heartbeats have moved."""
    assert seen(told(1, "init"), told(1, "init"), told(2.5, "init")).since_s == 3.0


def test_a_first_heartbeat_is_the_end_of_no_phase():
    """The runtime was loaded, and the start's own limit counts."""
    pulse = seen(Look(0, "S"), told(2, "init"))

    assert limit_of(pulse, Limits()) == Limits().init_s
