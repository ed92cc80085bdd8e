"""Ranks of an unmodified script that do nothing any more, told as simulated runs."""

import pytest

from dsup.core.activity import Work
from dsup.core.liveness import observe
from dsup.core.pulse import Look
from dsup.core.stillness import (
    EVERY_S,
    STILL_S,
    WORKED_S,
    Stillness,
    counted,
    rested,
    suspects,
    wants_close,
)
from dsup.core.watch import Absence, Watch

WORKS = Work(EVERY_S, wrote=False)
TALKS = Work(0.0, wrote=True)
SLEEPS = Work(0.01, wrote=False)
TRAINED_S = 300.0


def run(*ranks, until_s=3000.0, strain=1.0):
    """Return when who is first suspected, of what ranks do at a time."""
    stillness, now_s = Stillness(), 0.0
    while now_s < until_s:
        now_s += EVERY_S
        works = {rank: does(now_s) for rank, does in enumerate(ranks)}
        stillness = counted(stillness, works, now_s)
        if found := suspects(stillness, now_s, strain):
            return now_s, {rank: one.kind for rank, one in found.items()}
    return None


def trains(now_s, then=SLEEPS):
    """Work and print at first, and do something else then."""
    if now_s > TRAINED_S:
        return then
    return TALKS if now_s % 60 == 0 else WORKS


def busy(now_s):
    """Wait for others without sleeping, as for a collective of GPUs."""
    return trains(now_s, WORKS)


def test_a_node_on_which_nothing_happens_any_more_is_suspected():
    """All ranks of it alike, since nobody can tell them apart from outside."""
    at_s, found = run(trains, trains, trains)

    assert found == dict.fromkeys(range(3), "still")
    assert STILL_S <= at_s - TRAINED_S <= STILL_S + 2 * EVERY_S


def test_one_that_does_nothing_while_all_others_wait_busily_is_named():
    """It did not come; whoever waits for a GPU keeps a processor busy."""
    at_s, found = run(busy, busy, trains, busy)

    assert found == {2: "idle"}
    assert STILL_S <= at_s - TRAINED_S <= STILL_S + 2 * EVERY_S


@pytest.mark.parametrize(
    "ranks",
    [
        pytest.param((busy, busy, busy), id="all compute, and print nothing"),
        pytest.param((busy, trains, trains), id="one prepares, the others wait asleep"),
        pytest.param((busy, trains), id="of two, one works"),
        pytest.param(
            (trains, lambda s: trains(s, TALKS if s % 210 == 0 else SLEEPS)),
            id="now and then one prints",
        ),
        pytest.param(
            (trains, lambda s: trains(s, WORKS if s % 210 == 0 else SLEEPS)),
            id="now and then one works",
        ),
        pytest.param(
            (lambda s: WORKS if s <= WORKED_S / 2 else SLEEPS,) * 2,
            id="they have hardly begun",
        ),
        pytest.param(
            (busy, busy, busy, lambda s: SLEEPS if s > EVERY_S else TALKS),
            id="a coordinator that only ever waits",
        ),
        pytest.param(
            (lambda s: WORKS if s <= TRAINED_S else SLEEPS,) * 2,
            id="nobody has ever written anything",
        ),
    ],
)
def test_what_others_than_hangs_look_like_is_no_suspicion(ranks):
    """However long it takes."""
    assert run(*ranks) is None


def test_an_overloaded_node_is_given_more_time():
    """A rank that gets no processor has used none."""
    at_s, _ = run(trains, trains, strain=3.0)

    assert at_s - TRAINED_S >= 3 * STILL_S


def test_nothing_is_still_that_nobody_has_looked_at():
    """The time of a rest does not count; that they have worked stays known."""
    stillness = Stillness()
    for now_s in range(30, 600, 30):
        stillness = counted(stillness, {0: trains(now_s)}, float(now_s))

    stillness = counted(rested(stillness, 4430.0), {0: SLEEPS}, 5010.0)

    assert not suspects(stillness, 5010.0)
    assert stillness.ranks[0].worked_s >= WORKED_S


def test_who_may_be_still_is_looked_at_closely():
    """Helpers that a quick census does not meet may work."""
    stillness = counted(Stillness(), {0: SLEEPS}, 10.0)

    assert not wants_close(stillness, 40.0)
    assert wants_close(stillness, 100.0)


def test_it_is_a_suspicion_on_which_nothing_is_ever_done():
    """Not even where stacks show that one rank did not come."""
    still = suspects(_still(), 900.0)
    watch = Watch(still=still, absent=Absence((1,), 900.0, seen_s=8000.0))
    kinds = []
    for now_s in range(900, 9000, 10):
        looks = [Look(0, state="S"), Look(1, state="S")]
        watch, found = observe(watch, looks, float(now_s))
        kinds += [one.kind for one in found]

    assert kinds == ["suspected"]


def _still():
    stillness = Stillness()
    for now_s in range(30, 900, 30):
        works = {0: trains(now_s), 1: trains(now_s)}
        stillness = counted(stillness, works, float(now_s))
    return stillness
