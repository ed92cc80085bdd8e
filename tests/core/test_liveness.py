"""Liveness, told as simulated runs: who is suspected when, and who is left alone."""

from typing import NamedTuple

import pytest

from dsup.core.activity import Active
from dsup.core.confirming import AT_WORK_S, FROZEN_S
from dsup.core.limits import Limits
from dsup.core.liveness import WAITING_S, calm_until_s, observe, rested
from dsup.core.pulse import FLOOR_S, Look
from dsup.core.watch import Absence, Finding, Watch

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


def test_a_limit_stands_still_after_nobody_has_looked():
    """A suspended laptop, or a stopped agent, is nobody's hang."""
    loops = [Loop(0, 0.1, stop_s=20.0)]
    _, watch = run(loops, 21)

    watch = rested(watch, 3980.0)
    watch, news = observe(watch, [loops[0].look(4001.0)], 4001.0)

    assert not news


def test_what_was_found_is_still_so_after_nobody_has_looked():
    """That the agent stood still is no sign of anybody's, and refutes no proof."""
    loops = [Loop(0, 0.1, stop_s=20.0), Loop(1, 0.1, stop_s=20.0)]
    _, watch = run(loops, 24)
    watch = watch._replace(absent=Absence((1,), 22.0, seen_s=23.0))

    watch = rested(watch, 100.0)
    watch, news = observe(watch, [loop.look(125.0) for loop in loops], 125.0)

    assert not news
    assert watch.absent == Absence((1,), 122.0, seen_s=123.0)
    assert all(
        s.since_s == pytest.approx(120.0, abs=0.2) for s in watch.suspected.values()
    )


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
    """It has the limit of its phase, and those that wait for it learn nothing of it.

    That they have waited for long is for people, who see by the stacks what for.
    """
    found, watch = run(alone(phase, 30.0, 630.0), 700.0)

    assert [(one.kind, one.ranks, one.why) for one in found] == [
        ("suspected", (1,), "waiting"),
        ("cleared", (1,), "progress"),
    ]
    assert 30.0 + WAITING_S <= found[0].at_s <= 33.0 + WAITING_S
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


def test_a_rank_that_prepares_again_is_waited_for():
    """Phase init, once there are steps, is the next data set of a curriculum."""
    found, _ = run(alone("init", 30.0, 230.0), 260.0)

    assert not found


def evaluator(rank, now_s):
    """Look at one that evaluates for nine of ten seconds, and makes no step."""
    phase = "eval" if now_s % 10 else "init"
    return Look(rank, "S", heartbeat_s=now_s, phase=phase)


def test_a_dedicated_evaluator_excuses_nobody():
    """It enters phase after phase, and nobody ever waits for it."""
    loop, watch, found = Loop(0, 0.1, stop_s=100.0), Watch(), list[Finding]()
    for now_s in map(float, range(1, 300)):
        looks = [loop.look(now_s), evaluator(1, now_s)]
        watch, news = observe(watch, looks, now_s)
        found += news

    assert [(one.kind, one.ranks, one.why) for one in found] == [
        ("suspected", (0,), "silent"),
        ("confirmed", (0,), "limit"),
    ]


def test_nobody_is_excused_beyond_the_limit_of_the_phase():
    """Phase after phase, each within its limit: those that wait have theirs then."""
    limits = Limits(train_s=50.0, eval_s=120.0)
    loop = Loop(0, 0.1, stop_s=100.0)
    beats = Loop(1, 90.0, phase="eval")  # it evaluates for ever, in steps of its own

    found, _ = run([loop, beats], 400.0, watch=Watch(limits))

    (confirmed,) = [one for one in found if one.kind == "confirmed"]
    assert confirmed.ranks == (0,)
    assert 100 + 120 + 50 <= confirmed.at_s <= 100 + 120 + 50 + 5


@pytest.mark.parametrize("phase", ["eval", "checkpoint", "finish"])
def test_a_rank_that_sleeps_in_the_kernel_while_it_saves_is_no_hang(phase):
    """An fsync of a large checkpoint takes minutes; it is told, until its limit."""
    watch, found = Watch(Limits(**{f"{phase}_s": 900.0})), list[tuple]()
    for now_s in map(float, range(1, 1000)):
        look = Look(0, "D" if now_s > 5 else "S", 1.0, 7, 1.0, 1.0, phase)
        watch, news = observe(watch, [look], now_s)
        found += [(now_s, one.kind, one.why) for one in news]

    assert found == [
        (16.0, "suspected", "asleep"),
        (902.0, "confirmed", "asleep"),
    ]


def missing(until_s, other, active=None):
    """Return when it is confirmed that rank 1 does not come, of what rank 0 does."""
    loops, found = [Loop(1, 0.1, stop_s=100.0), other], list[tuple]()
    _, watch = run(loops, 104.0, watch=Watch(Limits(train_s=9000.0)))
    for now_s in map(float, range(105, until_s)):
        if watch.absent or now_s == 105:
            watch = watch._replace(absent=Absence((1,), 104.0, seen_s=now_s))
        watch = watch._replace(active=active(now_s) if active else {})
        watch, news = observe(watch, [loop.look(now_s) for loop in loops], now_s)
        found += [(now_s, one.why) for one in news if one.kind == "confirmed"]
    return found


def test_nobody_is_missed_by_ranks_that_go_on():
    """Those that were seen to wait for it have made a step, so they did not."""
    assert missing(400, Loop(0, 3.0)) == []
    assert missing(400, Loop(0, 0.1, stop_s=100.0)) == [(164.0, "absent")]


def test_a_rank_that_is_at_work_is_missed_for_longer():
    """As one that evaluates without a phase; not beyond what a collective waits."""
    waits = Loop(0, 0.1, stop_s=100.0)

    def works(now_s):
        return {1: Active(now_s, now_s)}

    def spins(now_s):
        return {1: Active(now_s, 104.0)}

    assert missing(900, waits, active=works) == [(104.0 + AT_WORK_S, "absent")]
    assert missing(900, waits, active=spins) == [(164.0, "absent")]


def stopped(trained_s, until_s, active=None, **watch):
    """Return when a limit confirms, of two ranks that trained for so long."""
    loops = [Loop(0, 0.2, stop_s=trained_s), Loop(1, 0.2, stop_s=trained_s)]
    seen, found = Watch(**watch), list[float]()
    for now_s in map(float, range(1, until_s)):
        seen = seen._replace(active=active(now_s) if active else {})
        seen, news = observe(seen, [loop.look(now_s) for loop in loops], now_s)
        found += [now_s for one in news if one.why == "limit"]
    return found


def test_a_learned_limit_ends_nobody_who_is_at_work():
    """A compilation uses a processor; it has the time that the first one has."""
    assert stopped(100.0, 400) == [pytest.approx(161, abs=1)]
    assert stopped(100.0, 1800, active=lambda s: {0: Active(s, s)}) == []
    assert stopped(100.0, 2000, active=lambda s: {0: Active(s, s)}) == [
        pytest.approx(1901, abs=1)
    ]


def test_work_that_has_ended_excuses_no_more():
    """From its end on the limit counts."""

    def until(now_s):
        return {0: Active(min(now_s, 150.0), min(now_s, 150.0))}

    assert stopped(100.0, 400, active=until) == [pytest.approx(211, abs=1)]


def test_that_others_spin_excuses_nobody():
    """Ranks that wait for a GPU do; their own limits are another matter."""

    def spins(now_s):
        return {0: Active(now_s, 90.0), 1: Active(90.0, 90.0)}

    assert stopped(100.0, 400, active=spins) == [pytest.approx(161, abs=1)]


def test_a_given_limit_is_taken_at_its_word():
    """Whoever says how long a step may take knows what the rank does then."""
    works = lambda s: {0: Active(s, s)}  # noqa: E731 (a value)

    found = stopped(100.0, 400, active=works, limits=Limits(train_s=90.0))

    assert found == [pytest.approx(191, abs=1)]


def test_what_was_learned_in_a_moment_confirms_nothing():
    """A resumed run skips what it has seen, and then compiles for its first step."""
    assert stopped(5.0, 1800) == []


def test_an_overloaded_node_triples_a_given_limit_at_most():
    """What a user gave is no guess."""
    loop = Loop(0, 0.1, stop_s=100.0)

    found, _ = run([loop], 700, watch=Watch(Limits(train_s=60.0)), strain=10.0)

    assert [one.at_s for one in found if one.kind == "confirmed"] == [280.0]


def test_a_rank_that_is_left_may_finish():
    """Another has ended with exit 0; this one may save the last checkpoint."""
    loops, watch = [Loop(0, 0.2), Loop(1, 0.2, stop_s=100.0)], Watch()
    found: list[Finding] = []
    for now_s in map(float, range(1, 1800)):
        there = loops if now_s <= 101 else loops[1:]
        watch, news = observe(watch, [one.look(now_s) for one in there], now_s)
        found += news

    assert "confirmed" not in kinds(found)


def quiet(now_s, rank, wrote):
    return Look(rank, "S", wrote=wrote)


def test_output_of_one_rank_is_life_of_all():
    """Of an unmodified script rank 0 alone prints, and the others compute."""
    watch, found = Watch(Limits(unseen_s=30.0)), []
    for now_s in range(1, 200):
        looks = [quiet(now_s, 0, min(now_s, 100) // 10), quiet(now_s, 1, 5)]
        watch, news = observe(watch, looks, float(now_s))
        found += [(now_s, one.kind, one.ranks) for one in news]

    assert found == [(131, "suspected", (0, 1)), (131, "confirmed", (0, 1))]


def test_work_of_a_rank_that_tells_nothing_is_its_life():
    """It may print nothing, and work; that it spins is no work."""
    watch, found = Watch(Limits(unseen_s=30.0)), []
    for now_s in range(1, 100):
        active = {0: Active(now_s, now_s), 1: Active(now_s, 10.0)}
        watch = watch._replace(active=active)
        looks = [quiet(now_s, 0, 5), quiet(now_s, 1, 5)]
        watch, news = observe(watch, looks, float(now_s))
        found += [(now_s, one.kind, one.ranks) for one in news]

    assert found == [(41, "suspected", (1,)), (41, "confirmed", (1,))]
