"""Strain: by how much overload stretches limits, told as counters of the kernel's."""

import pytest

from dsup.core.strain import MOST, RECENT, Pressure, Strain, looked_at


def after(looks, *, progressed=True, before=None):
    """Return the strain after looks a second apart, each a share of that second."""
    strain = before or Strain(Pressure(0.0))
    at_s, cpu_us = strain.last.at_s, strain.last.cpu_us
    for share in looks:
        at_s, cpu_us = at_s + 1.0, cpu_us + int(share * 1e6)
        strain = looked_at(strain, Pressure(at_s, cpu_us), progressed=progressed)
    return strain


def test_a_calm_node_stretches_nothing():
    """Nobody waits for a processor, so every limit is what it is."""
    assert after([0.0] * 20).factor == 1.0


def test_sudden_load_counts_at_once():
    """What begins a second ago slows the step that is under way."""
    calm = after([0.0] * 60)

    assert after([0.75], progressed=False, before=calm).factor == pytest.approx(4.0)


def test_load_under_which_the_steps_were_learned_stretches_nothing():
    """More ranks than processors make every step long, and the limit with it."""
    assert after([0.8] * 60).factor == 1.0


def test_load_that_has_passed_is_forgotten():
    """A burst stretches the limits of the steps that it may have slowed."""
    burst = after([0.9], progressed=False, before=after([0.0] * 60))

    assert after([0.0] * (RECENT - 1), before=burst).factor > 5
    assert after([0.0] * RECENT, before=burst).factor == 1.0


def test_a_node_that_only_waits_stretches_by_no_more_than_ten():
    """A limit must stay one."""
    assert after([1.0], before=after([0.0] * 60)).factor == MOST


def test_a_quota_that_is_used_up_stretches_as_waiting_does():
    """In half of all periods the cgroup had to stand still."""
    strain = looked_at(Strain(), Pressure(0.0), progressed=False)
    strain = looked_at(strain, Pressure(1.0, 0, 0, 10, 5), progressed=False)

    assert strain.factor == pytest.approx(2.0)


@pytest.mark.parametrize(
    "now",
    [
        pytest.param(Pressure(1.0, 5, 5, 5, 5), id="counters that begin anew"),
        pytest.param(Pressure(0.0, 10**9, 10, 10, 10), id="two looks at one moment"),
        pytest.param(Pressure(-1.0, 10**9), id="a clock that goes backwards"),
    ],
)
def test_counters_that_make_no_sense_stretch_nothing(now):
    """A cgroup may be made anew under the same name."""
    before = Strain(Pressure(0.0, 10, 10, 10, 10))

    assert looked_at(before, now, progressed=False).factor == 1.0
