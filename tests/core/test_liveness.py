"""Liveness, told as simulated runs: who is suspected when, and who is left alone."""

from typing import NamedTuple

import pytest

from dsup.core.limits import Limits
from dsup.core.liveness import (
    FROZEN_S,
    Absence,
    Finding,
    Watch,
    calm_until_s,
    observe,
    rested,
)
from dsup.core.pulse import FLOOR_S, Look

TICK_S = 1.0


class Told(NamedTuple):
    """A finding and when it was made."""

    at_s: float
    kind: str
    ranks: tuple[int, ...]
    why: str


class Loop:
    """One rank's loop: how long each step takes, and where it stops for good."""

    def __init__(self, rank, step_s, *, stop_s=1e9, phase="train", start_s=0.0):
        self.rank = rank
        self.step_s = step_s if callable(step_s) else lambda _: step_s
        self.stop_s = stop_s
        self.phase = phase if callable(phase) else lambda _: phase
        self.at_s, self.step = start_s, None
        self.state = lambda _: "S"

    def look(self, now_s):
        """Return how the rank looks at a moment."""
        while (done_s := self.at_s + self.step_s(self.step)) <= min(now_s, self.stop_s):
            self.at_s, self.step = done_s, (self.step or 0) + 1
        told = None if self.step is None else self.at_s
        return Look(
            self.rank,
            state=self.state(now_s),
            step=self.step,
            heartbeat_s=told,
            progress_s=told,
            phase="init" if self.step is None else self.phase(now_s),
        )


def run(loops, until_s, *, watch=None, strain=1.0, tick_s=TICK_S):
    """Return the findings of a watch over loops, and the watch."""
    watch, found, now_s = watch or Watch(), [], 0.0
    while now_s < until_s:
        now_s += tick_s
        watch, news = observe(
            watch, [loop.look(now_s) for loop in loops], now_s, strain
        )
        found += [Told(now_s, one.kind, one.ranks, one.why) for one in news]
    return found, watch


def kinds(found):
    return [one.kind for one in found]


@pytest.mark.parametrize("step_s", [0.05, 0.7, 3.0, 20.0])
def test_a_rank_that_makes_no_step_any_more_is_suspected_within_three_steps(step_s):
    """Whatever a step takes: three of them, two seconds at least, and one look."""
    stop_s = 40 * step_s
    loops = [Loop(0, step_s), Loop(1, step_s, stop_s=stop_s)]

    found, _ = run(loops, stop_s + 5 * step_s + 10)

    first = found[0]
    assert (first.kind, first.ranks) == ("suspected", (1,))
    assert first.at_s - stop_s <= max(3 * step_s, FLOOR_S) + TICK_S + step_s


@pytest.mark.parametrize("step_s", [0.05, 0.5, 3.0, 20.0])
def test_an_evaluation_without_a_phase_is_no_hang(step_s):
    """Every hundredth step takes forty times as long, and nobody is accused of it."""

    def of(step):
        return step_s * (40 if step and step % 100 == 99 else 1)

    found, watch = run([Loop(0, of), Loop(1, of)], 700 * step_s)

    assert "confirmed" not in kinds(found)
    assert kinds(found).count("suspected") <= 1
    assert not watch.confirmed


def test_a_first_step_that_compiles_is_no_hang():
    """Nothing was learned yet, so the start's own limit counts."""
    compiles = lambda step: 300.0 if step is None else 0.1  # noqa: E731 (two values)

    found, _ = run([Loop(0, compiles), Loop(1, compiles)], 400)

    assert not found


@pytest.mark.parametrize("phase", ["eval", "checkpoint", "finish"])
def test_a_phase_of_its_own_has_its_own_patience(phase):
    """An evaluation of ten minutes is what people do."""
    pauses = lambda step: 600.0 if step == 50 else 0.1  # noqa: E731
    loop = Loop(0, pauses, phase=lambda now_s: "train" if now_s < 5 else phase)

    found, _ = run([loop], 580)

    assert not found


def test_a_phase_that_outlasts_its_limit_is_confirmed():
    """What was asked for with a limit is acted upon."""
    limits = Limits(eval_s=120.0)
    loop = Loop(
        3, 0.1, stop_s=20.0, phase=lambda now_s: "train" if now_s < 15 else "eval"
    )

    found, _ = run([loop], 200, watch=Watch(limits))

    assert kinds(found) == ["suspected", "confirmed"]
    assert found[-1].ranks == (3,)
    assert 138 <= found[-1].at_s <= 145


def test_a_frozen_rank_is_named_at_once_and_confirmed_after_a_minute():
    """SIGSTOP needs no learned time, and no runtime."""
    loop = Loop(0, 0.1)
    loop.state = lambda now_s: "T" if now_s >= 10 else "S"

    found, _ = run([Loop(1, 0.1), loop], 100)

    assert [one[:3] for one in found] == [
        (10.0, "suspected", (0,)),
        (10.0 + FROZEN_S, "confirmed", (0,)),
    ]


def test_a_rank_under_a_debugger_is_left_alone():
    """Whoever steps through a rank, or looks at it for an hour, loses no run."""
    loop = Loop(0, 0.1)
    loop.state = lambda now_s: "t" if now_s >= 10 else "S"

    found, _ = run([Loop(1, 0.1, stop_s=11.0), loop], 3000)

    assert "confirmed" not in kinds(found)


def test_a_second_hang_is_told_as_well():
    """What was confirmed and then passed, with --on-hang report, is not the last."""
    loop = Loop(0, 0.1)
    loop.state = lambda now_s: "T" if 10 <= now_s < 90 or now_s >= 100 else "S"

    found, _ = run([loop], 200)

    once = ["suspected", "confirmed"]
    assert kinds(found) == [*once, "cleared", *once]


def test_a_rank_that_is_continued_is_cleared():
    """A debugger that lets go leaves nothing behind."""
    loop = Loop(0, 0.1)
    loop.state = lambda now_s: "T" if 10 <= now_s < 40 else "S"

    found, watch = run([loop], 200)

    assert kinds(found) == ["suspected", "cleared"]
    assert not watch.suspected


def test_a_rank_that_reads_and_writes_is_not_asleep():
    """State D at every look is no hang where processor time passes."""

    def look(now_s):
        return Look(0, state="D", cpu_s=now_s / 10)

    watch, found = Watch(), list[Finding]()
    for now_s in range(1, 200):
        watch, news = observe(watch, [look(now_s)], float(now_s))
        found += news

    assert not found


def test_a_rank_asleep_in_the_kernel_is_confirmed_after_a_minute():
    """State D without any processor time is a file system or a driver."""
    watch, found = Watch(), []
    for now_s in range(1, 100):
        looks = [Look(0, state="D", cpu_s=1.0), Look(1, state="S", cpu_s=float(now_s))]
        watch, news = observe(watch, looks, float(now_s))
        found += [(now_s, one.kind, one.ranks) for one in news]

    assert found == [(11, "suspected", (0,)), (61, "confirmed", (0,))]


def test_without_the_runtime_nothing_but_the_state_counts():
    """A script that tells nothing may compute for as long as it likes."""
    watch = Watch()
    for now_s in range(1, 10_000, 10):
        watch, news = observe(watch, [Look(0, state="R")], float(now_s))
        assert not news


def test_who_did_not_come_is_confirmed_after_a_minute():
    """Stacks have shown where the others wait, and that is not over by then."""
    loops = [Loop(0, 0.1, stop_s=20.0), Loop(1, 0.1, stop_s=20.0)]
    _, watch = run(loops, 24, watch=Watch(Limits(train_s=900.0)))
    watch = watch._replace(absent=Absence((1,), 22.0, "dataset.py:88 in read", 55.0))

    found: list[tuple] = []
    for now_s in range(25, 100):
        watch, news = observe(watch, [loop.look(now_s) for loop in loops], float(now_s))
        found += [(now_s, one.kind, one.ranks, one.why) for one in news]

    assert found == [(82, "confirmed", (1,), "absent")]


def test_an_overloaded_node_widens_every_limit():
    """What takes three times as long is given three times as long."""
    loops = [Loop(0, 1.0, stop_s=60.0)]

    calm, _ = run(loops, 80)
    strained, _ = run([Loop(0, 1.0, stop_s=60.0)], 80, strain=3.0)

    assert strained[0].at_s - 60 > 2 * (calm[0].at_s - 60)


def test_overload_freezes_nobody():
    """State T is somebody's signal, on a busy node as well."""
    loop = Loop(0, 0.1)
    loop.state = lambda now_s: "T" if now_s >= 10 else "S"

    found, _ = run([loop], 100, strain=8.0)

    assert [one.at_s for one in found] == [10.0, 10.0 + FROZEN_S]


def test_limits_begin_anew_after_nobody_has_looked():
    """A suspended laptop, or a stopped agent, is nobody's hang."""
    loops = [Loop(0, 0.1, stop_s=20.0)]
    _, watch = run(loops, 21)

    watch = rested(watch, 4000.0)
    watch, news = observe(watch, [loops[0].look(4001.0)], 4001.0)

    assert not news


def test_of_stalled_ranks_those_behind_are_named():
    """All wait for the one that has not finished the step before."""
    loops = [
        Loop(0, 0.5, stop_s=30.1),
        Loop(1, 0.5, stop_s=29.6),
        Loop(2, 0.5, stop_s=30.1),
    ]

    found, _ = run(loops, 40)

    assert found[0].kind == "suspected"
    assert found[0].ranks == (1,)


def test_looks_that_show_nothing_new_can_be_left_out_until_a_limit():
    """But for whatever sleeps in the kernel, is frozen, or suspected already."""
    _, watch = run([Loop(0, 0.5)], 20)
    asleep, _ = observe(watch, [Look(1, state="D")], 21.0)
    suspected, _ = observe(watch, [Look(1, state="T")], 21.0)

    assert calm_until_s(watch) == pytest.approx(20.0 + FLOOR_S)
    assert calm_until_s(Watch()) == float("inf")
    assert calm_until_s(asleep) == float("-inf")
    assert calm_until_s(suspected) == float("-inf")


def test_a_rank_that_freezes_is_news_among_silent_ones():
    """All wait for it by then; that the kernel says why is what people need."""
    loops = [Loop(0, 0.1, stop_s=20.0), Loop(1, 0.1, stop_s=20.0)]
    loops[1].state = lambda now_s: "T" if now_s > 30 else "S"

    found, _ = run(loops, 40)

    assert [(one.ranks, one.why) for one in found] == [
        ((0, 1), "silent"),
        ((1,), "frozen"),
    ]


def test_a_debugger_that_looks_for_a_moment_is_no_freeze():
    """It traces for less than two seconds."""
    loops = [Loop(0, 0.1)]
    loops[0].state = lambda now_s: "t" if now_s == 20 else "S"
    assert run(loops, 30)[0] == []

    loops[0].state = lambda now_s: "t" if now_s >= 40 else "S"
    found, _ = run(loops, 50)
    assert [(one.at_s, one.why) for one in found] == [(42.0, "frozen")]


def test_who_did_not_come_is_not_confirmed_on_an_old_proof():
    """It may have come since, and another be the one that all wait for."""
    loops = [Loop(0, 0.1, stop_s=20.0), Loop(1, 0.1, stop_s=20.0)]
    _, watch = run(loops, 24, watch=Watch(Limits(train_s=900.0)))
    watch = watch._replace(absent=Absence((1,), 22.0, seen_s=40.0))

    for now_s in range(25, 200):
        looks = [loop.look(now_s) for loop in loops]
        watch, news = observe(watch, looks, float(now_s))
        assert not news


def alone(phase, begin_s, end_s):
    """Return two loops, of which the first is in a phase while the other waits."""
    away_s = end_s - begin_s
    first = Loop(0, lambda step: away_s if step == 100 else begin_s / 100)
    first.phase = lambda now_s: phase if begin_s < now_s <= end_s else "train"
    other = Loop(1, lambda step: away_s if step == 100 else begin_s / 100)
    return [first, other]


@pytest.mark.parametrize("phase", ["eval", "checkpoint", "finish"])
def test_ranks_may_wait_for_one_that_evaluates_alone(phase):
    """It has the limit of its phase, and those that wait for it learn nothing of it."""
    found, watch = run(alone(phase, 30.0, 630.0), 700.0)

    assert not found
    assert all(pulse.longest_s < 5 for pulse in watch.pulses.values())


def test_ranks_that_do_not_go_on_after_an_evaluation_are_suspected():
    """Their time starts with its end."""
    loops = alone("eval", 30.0, 90.0)
    for loop in loops:
        loop.stop_s = 90.0

    found, _ = run(loops, 100.0)

    assert [one.kind for one in found] == ["suspected"]
    assert 92.0 <= found[0].at_s <= 94.0


def test_an_evaluation_that_outlasts_its_limit_excuses_nobody():
    """Who waits for it is no more patient than whoever set the limit."""
    watch = Watch(Limits(eval_s=120.0))

    found, _ = run(alone("eval", 30.0, 9000.0), 400.0, watch=watch)

    assert ("confirmed", (0,)) in [(one.kind, one.ranks) for one in found]


def test_more_overload_refutes_no_suspicion():
    """Nothing has moved: the rank did not go on."""
    loops = [Loop(0, 0.1, stop_s=20.0)]
    _, watch = run(loops, 24)

    watch, news = observe(watch, [loops[0].look(25.0)], 25.0, strain=10.0)

    assert not news
    assert set(watch.suspected) == {0}
