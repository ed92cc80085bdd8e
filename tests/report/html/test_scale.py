"""Time on an axis."""

from hypothesis import given
from hypothesis import strategies as st

from dsup.report.html.scale import Scale, Stretch, distance, label, ticks
from dsup.report.html.words import NBSP


@given(st.floats(-2, 2e9), st.floats(0, 1e8))
def test_six_to_ten_ticks(from_s, span_s):
    """Any time has six to ten ticks, and is not stretched by half for them."""
    found = ticks(from_s, from_s + span_s)

    assert 6 <= len(found.at_s) <= 10
    assert found.from_s <= found.at_s[0] <= found.at_s[-1] <= found.to_s
    assert found.from_s <= from_s
    assert from_s + span_s <= found.to_s
    assert found.to_s - found.from_s <= max(1.5 * span_s, 0.01)


def test_no_time_has_ticks_all_the_same():
    """What is no time has ticks, and breaks nothing."""
    assert len(ticks(0.0, 1e300).at_s) == 6


def test_ticks_are_round():
    """Ticks lie at round times: 39 minutes have one every five."""
    found = ticks(1_796_047_220.0, 1_796_049_569.0)

    assert found.step_s == 300
    assert all(at_s % 300 == 0 for at_s in found.at_s)
    assert label(found.at_s[0], found.step_s) == "14:05"


def test_labels_tell_ticks_apart():
    """Half seconds are told as such, and midnight by its day."""
    assert label(1.5, 0.5) == "00:00:01.5"
    assert label(86400.0, 3600) == "01-02"
    assert label(90000.0, 3600) == "01:00"


def test_distances():
    """Ticks of the last seconds count from the death."""
    assert distance(-1.0, 0.5) == f"\N{MINUS SIGN}1.0{NBSP}s"
    assert distance(0.05, 0.05) == f"+0.05{NBSP}s"
    assert distance(120, 60) == f"+2{NBSP}min"
    assert distance(7200, 3600) == f"+2{NBSP}h"


@given(st.lists(st.floats(0, 300), min_size=2, max_size=20))
def test_later_is_never_to_the_left(moments):
    """Of two moments the later one is drawn to the right, or at the same place."""
    scale = Scale((Stretch(0, 50, 10, 60), Stretch(100, 200, 80, 900)))
    drawn = [scale.x(at_s) for at_s in sorted(moments)]

    assert drawn == sorted(drawn)
    assert all(scale.left <= x <= scale.right for x in drawn)
