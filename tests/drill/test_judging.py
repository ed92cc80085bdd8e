"""What counts as a miss in a drill, and how its times are taken."""

import pytest

from dsup.core import events as ev
from dsup.drill.judging import Seen, Times, Word, misses, times
from dsup.drill.scenarios import Expected

RIGHT = Seen(Word("killed", (1,), "proven"), code=0, newest=15, resumed=15)


def test_what_must_come_of_it_is_no_miss():
    """The cause, the rank, sure enough, nothing left, and on from the newest."""
    assert misses(Expected("killed", 1), RIGHT) == ()
    assert misses(Expected("killed", 1), RIGHT._replace(resumed=20)) == ()


@pytest.mark.parametrize(
    ("change", "miss"),
    [
        ({"word": None}, "there is no verdict"),
        (
            {"word": Word("host_oom", (1,), "proven")},
            "the cause is host_oom, not killed",
        ),
        (
            {"word": Word("killed", (0,), "proven")},
            "the verdict names rank 0, not rank 1",
        ),
        (
            {"word": Word("killed", (0, 1), "proven")},
            "the verdict names ranks 0, 1, not rank 1",
        ),
        (
            {"word": Word("killed", (), "proven")},
            "the verdict names no rank, not rank 1",
        ),
        (
            {"word": Word("killed", (1,), "guess")},
            "the verdict is guess, not likely",
        ),
        ({"code": 137}, "the restarted job ended with exit code 137, not 0"),
        ({"resumed": None}, "training did not go on"),
        ({"resumed": 10}, "training went on from step 10, not from 15"),
        ({"left": ("process 7 is left: x",)}, "process 7 is left: x"),
    ],
)
def test_each_thing_that_goes_another_way_is_a_miss(change, miss):
    """It is said in words; nothing else is."""
    assert misses(Expected("killed", 1), RIGHT._replace(**change)) == (miss,)


def test_a_rank_named_where_none_is_to_be_is_a_miss():
    """Nobody's rank is guilty where dsup itself was killed."""
    seen = RIGHT._replace(word=Word("agent_killed", (2,), "likely"))

    assert misses(Expected("agent_killed", None), seen) == (
        "the verdict names rank 2, not no rank",
    )


@pytest.mark.parametrize(
    ("resumed", "missed"), [(10, False), (15, True), (20, True), (0, True)]
)
def test_a_torn_checkpoint_is_not_resumed_from(resumed, missed):
    """The one before is: neither the torn one nor the beginning."""
    expected = Expected("killed", 1, resumes="before")

    assert bool(misses(expected, RIGHT._replace(resumed=resumed))) is missed


def test_times_are_those_of_the_attempt_that_was_harmed():
    """From the fault to the first sign of it, to the empty group, to the next step."""
    happened: list[ev.Event] = [
        ev.HangSuspected("hang_suspected", 9.0, 0, (1,), "silent", 8.0, None),
        ev.RankExited("rank_exited", 10.5, 0.0, 0, 1, -9, ()),
        ev.RankExited("rank_exited", 10.6, 0.0, 0, 0, -15, ()),
        ev.GroupEmpty("group_empty", 11.0, 0),
        ev.GroupEmpty("group_empty", 19.0, 1),
    ]

    assert times(happened, 0, 10.0, 13.0) == Times(0.5, 0.5, 2.0)
    assert times(happened[:1], 0, 10.0, None) == Times(None, None, None)
