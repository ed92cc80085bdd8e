"""The ledger divides all of a run's time, and each part by the rule it is told by."""

from pathlib import Path

import pytest

from dsup.core import commands as cmd
from dsup.core import events as ev
from dsup.core import journal
from dsup.core.ledger import LOST, Ledger, balance, entered, happened, ordered

RECORDINGS = sorted((Path(__file__).parents[1] / "recordings").glob("*.jsonl"))


class Course:
    """What a journal gets, written down with one word each; the clock starts at 100."""

    def __init__(self):
        self.ledger = Ledger()
        self.attempt = 0
        self.at(0, ev.Launched, "launched", attempt=False)

    def at(self, at_s, cls, kind, *fields, attempt=True):
        """Let something happen."""
        number = (self.attempt,) if attempt else ()
        event = cls(kind, 100.0 + at_s, *number, *fields)
        self.ledger = happened(self.ledger, event)
        return self

    def order(self, cls, kind, *fields):
        """Order something because of it."""
        self.ledger = ordered(self.ledger, cls(kind, *fields))
        return self

    def begin(self, at_s, *, run_s, resume=""):
        """Prepare an attempt of two ranks and start them."""
        self.at(at_s, ev.Tick, "tick", attempt=False)
        self.order(cmd.Prepare, "prepare", self.attempt)
        self.at(at_s, ev.Prepared, "prepared", 29500, resume)
        for rank in (0, 1):
            self.at(run_s, ev.RankStarted, "rank_started", rank, 40 + rank)
        return self

    def step(self, at_s, step):
        """Have all ranks finish a step; it is seen half a second later."""
        return self.at(at_s + 0.5, ev.Stepped, "stepped", step, 100.0 + at_s)

    def end(self, at_s, rank, status, late_s=0.0):
        """Have a rank end."""
        fields = late_s, self.attempt, rank, status, ()
        return self.at(at_s, ev.RankExited, "rank_exited", *fields, attempt=False)

    def close(self, at_s, found=None):
        """Have nothing left of the attempt, and look for a checkpoint."""
        self.at(at_s, ev.GroupEmpty, "group_empty")
        self.order(cmd.Scan, "scan", self.attempt)
        path = f"ckpt/{found}" if found is not None else ""
        self.at(at_s, ev.Scanned, "scanned", found, path, "")
        self.attempt += 1
        return self

    def exit(self, code=0):
        """End the run."""
        return self.order(cmd.Exit, "exit", code, "dsup")

    def balance(self, now_s=None):
        """Return where the time went."""
        return balance(self.ledger, None if now_s is None else 100.0 + now_s)


@pytest.fixture
def course():
    """Give a run that was just launched."""
    return Course()


def lost(found):
    """Return what was lost, without what is nothing."""
    return {name: s for name, s in found.lost_s.items() if s}


def test_a_restart_costs_what_each_part_of_it_took(course):
    """Ten steps of 10 s, a checkpoint at the sixth, a death seen late, a restart."""
    course.begin(0, run_s=5).step(30, 1).step(120, 10)
    course.end(125, 0, -9, late_s=1).end(128, 1, -15).close(130, found=6)
    course.begin(140, run_s=141, resume="ckpt/6").step(160, 7).step(260, 17)
    course.end(270, 0, 0).end(270, 1, 0).at(275, ev.GroupEmpty, "group_empty").exit()

    found = course.balance()

    assert lost(found) == {
        "start_up": 30 + 20,  # to the end of the first step
        "detection": 1,
        "teardown": 5,
        "pause": 10,
        "recomputed": 4 * 10 + 4,  # steps 7 to 10, and the one that was not finished
        "stopping": 5,
    }
    assert found.productive_s == 275 - sum(lost(found).values())
    assert found.ettr == pytest.approx(found.productive_s / 275)


def test_a_hang_is_detected_from_its_last_sign_of_life(course):
    """What passes between that and the verdict is detection; it was no work."""
    course.begin(0, run_s=1).step(10, 1).step(100, 10)
    course.at(105, ev.HangSuspected, "hang_suspected", (0,), "stalled", 202.0, 10.0)
    course.at(140, ev.HangSuspected, "hang_suspected", (1,), "frozen", 204.0, 10.0)
    course.at(162, ev.HangConfirmed, "hang_confirmed", (0,), "absent")
    course.order(cmd.Capture, "capture", 0, True)
    course.end(170, 0, -15).end(170, 1, -15).close(172).exit(1)

    found = course.balance()

    assert lost(found) == {"start_up": 10, "detection": 60, "teardown": 10}
    assert found.productive_s == 92


def test_a_hang_that_passed_costs_nothing(course):
    """A doubt that was cleared is not taken for the beginning of a later hang."""
    course.begin(0, run_s=1).step(10, 1)
    course.at(50, ev.HangSuspected, "hang_suspected", (0,), "stalled", 140.0, 10.0)
    assert course.balance(59).lost_s["detection"] == 19
    course.at(60, ev.HangCleared, "hang_cleared", (0,)).step(90, 2)
    assert course.balance().productive_s == 80.5
    course.at(91, ev.HangConfirmed, "hang_confirmed", (0,), "limit")
    course.order(cmd.Capture, "capture", 0, True)

    assert course.balance().lost_s["detection"] == 0


@pytest.mark.parametrize(
    ("wish", "order"),
    [
        (
            ev.Signalled("signalled", 190.0, 15, 1),
            cmd.SignalRanks("signal_ranks", 0, (0, 1), 15),
        ),
        (ev.Tick("tick", 190.0), cmd.FreezePage("freeze_page", 0, 230.0)),
        (ev.GuardLost("guard_lost", 190.0), cmd.KillAll("kill_all", 0)),
        (ev.RankExited("rank_exited", 190.0, 0.0, 0, 1, 134, ()), None),
    ],
    ids=["stopped", "time limit", "guard lost", "a rank died of it"],
)
def test_a_hang_that_nobody_ended_is_no_work(course, wish, order):
    """From its last sign of life the time is lost: at once, and whatever ends it."""
    course.begin(0, run_s=0).step(10, 1).step(40, 4)
    course.at(50, ev.HangSuspected, "hang_suspected", (0,), "still", 140.0, 10.0)
    course.at(55, ev.HangConfirmed, "hang_confirmed", (0,), "limit")
    live = course.balance(60)

    assert (live.productive_s, lost(live)) == (30, {"start_up": 10, "detection": 20})
    course.ledger = entered(course.ledger, (wish, order) if order else (wish,))
    assert course.balance().productive_s == 30
    assert lost(course.balance()) == {"start_up": 10, "detection": 50}


def test_who_has_all_ended_well_did_not_hang(course):
    """A doubt that nobody has taken back costs nothing then."""
    course.begin(0, run_s=0).step(10, 1)
    course.at(50, ev.HangSuspected, "hang_suspected", (0,), "still", 140.0, 10.0)
    course.end(60, 0, 0).end(60, 1, 0)

    assert lost(course.balance()) == {"start_up": 10}


@pytest.mark.parametrize(
    ("resume", "first_step", "again"),
    [
        pytest.param("ckpt/6", 7, 40, id="dsup knew the checkpoint"),
        pytest.param("", 7, 40, id="the script found it by itself"),
        pytest.param("", 0, 90, id="from the beginning"),
        pytest.param("", 11, 0, id="nothing had to be done again"),
    ],
)
def test_what_was_done_again_follows_from_where_it_went_on(
    course, resume, first_step, again
):
    """A known checkpoint counts; else the first step that is told of."""
    course.begin(0, run_s=1).step(10, 1).step(100, 10).end(100.5, 0, 1)
    course.close(101, found=6 if resume else None)
    course.begin(110, run_s=110, resume=resume).step(120, first_step)

    assert course.balance(130).lost_s["recomputed"] == pytest.approx(again + 0.5)


def test_an_older_checkpoint_costs_more_than_one_attempt(course):
    """What a later attempt does again was lost by every attempt that had done it."""
    course.begin(0, run_s=0).step(10, 1).step(100, 10).end(101, 0, 1)
    course.close(101, found=10)
    course.begin(101, run_s=101, resume="ckpt/10").step(110, 11).step(200, 20)
    course.end(201, 0, 1).close(201, found=4)
    course.begin(201, run_s=201, resume="ckpt/4").step(210, 5)

    first, second = (10 - 4) * 10 + 1, 201 - 110
    assert course.balance(211).lost_s["recomputed"] == first + second


def test_without_a_following_attempt_nothing_is_done_again(course):
    """What tomorrow's launch repeats is not this run's loss."""
    course.begin(0, run_s=0).step(10, 1).step(100, 10).end(105, 0, 1)
    course.close(106, found=2).exit(1)

    assert course.balance().lost_s["recomputed"] == 0


def test_without_steps_there_is_no_ettr(course):
    """All the time that ranks were alive counts, and that is said."""
    course.begin(0, run_s=2).end(50, 0, 1).close(60)
    course.begin(70, run_s=71).end(100, 0, 0).end(100, 1, 0).exit()

    found = course.balance()

    assert (found.by_steps, found.ettr) == (False, None)
    assert found.productive_s == 48 + 29
    assert found.lost_s["start_up"] == 2 + 1


def test_an_attempt_without_a_step_was_all_start_up(course):
    """In a run whose ranks tell their steps, one that told none had not begun."""
    course.begin(0, run_s=2).end(50, 0, 1).close(50)
    course.begin(50, run_s=51).step(60, 1)

    assert lost(course.balance(100)) == {"start_up": 60}


@pytest.mark.parametrize(
    ("wish", "order"),
    [
        (
            ev.Signalled("signalled", 150.0, 15, 1),
            cmd.SignalRanks("signal_ranks", 0, (0, 1), 15),
        ),
        (ev.Tick("tick", 150.0), cmd.FreezePage("freeze_page", 0, 190.0)),
        (
            ev.StopWanted("stop_wanted", 150.0, 0, 1, "preempt", "", 4),
            cmd.FreezePage("freeze_page", 0, 190.0),
        ),
        (ev.GuardLost("guard_lost", 150.0), cmd.KillAll("kill_all", 0)),
    ],
    ids=["signal", "time limit", "a rank's wish", "guard lost"],
)
def test_a_stop_takes_the_rest(course, wish, order):
    """From the wish on all time goes to stopping, a death on the way included."""
    course.begin(0, run_s=0).step(10, 1)
    course.ledger = entered(course.ledger, (wish, order))
    course.end(60, 0, 143).end(70, 1, 143).exit(143)

    assert lost(course.balance()) == {"start_up": 10, "stopping": 20}


def test_a_stop_for_an_error_is_a_failure(course):
    """Ranks that leave because one has failed fail; the pause that follows is one."""
    course.begin(0, run_s=0).step(10, 1)
    course.at(50, ev.StopWanted, "stop_wanted", 1, "error", "", 4)
    course.order(cmd.FreezePage, "freeze_page", 0, 190.0)
    course.end(60, 1, 1).end(61, 0, 1).close(62)

    assert lost(course.balance(70)) == {"start_up": 10, "teardown": 2, "pause": 8}


def test_what_cannot_start_did_no_work(course):
    """Preparation that fails is start-up; what follows is teardown."""
    course.at(0, ev.Tick, "tick", attempt=False).order(cmd.Prepare, "prepare", 0)
    course.at(7, ev.Cannot, "cannot", "port_in_use", 1, "taken")
    course.order(cmd.KillAll, "kill_all", 0).close(8).exit(1)

    assert course.balance().productive_s == 0
    assert lost(course.balance()) == {"start_up": 7, "teardown": 1}


@pytest.mark.parametrize("at_s", [-1e300, 1e300, -1.0])
def test_a_time_that_no_clock_shows_is_ignored(course, at_s):
    """One damaged line does not make the run a million years long."""
    course.begin(0, run_s=0).at(at_s - 100, ev.Tick, "tick", attempt=False)

    assert course.balance().wall_s == 0
    assert balance(Ledger()) is None


@pytest.mark.parametrize("path", RECORDINGS, ids=[path.stem for path in RECORDINGS])
def test_every_second_of_a_recorded_run_is_in_one_part(path):
    """The parts of real runs make their whole, at the end and at each moment before."""
    ledger, now_s = Ledger(), 0.0
    for entry in journal.entries(path.read_text().splitlines()[1:]):
        item = entry.event or entry.command
        assert item is not None
        ledger = entered(ledger, [item])
        now_s = max(now_s, getattr(entry.event, "at_s", 0.0))
        found = balance(ledger, now_s)
        whole_s = found.productive_s + sum(found.lost_s.values())
        assert found.wall_s == pytest.approx(whole_s, abs=1e-6)
        assert min(found.productive_s, *found.lost_s.values()) >= -1e-9
        assert set(found.lost_s) == set(LOST)
