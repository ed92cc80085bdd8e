"""The inquiry: when the judge is asked, and what happens where it does not answer."""

import errno
import json
import os
import select
import signal
import time
from types import SimpleNamespace

import pytest

from dsup import judging
from dsup.attribution.judge import judge
from dsup.core import events as ev
from dsup.core.state import NEVER, Hang
from dsup.edges.aide import Aides
from dsup.edges.loop import Loop
from dsup.inquiry import Inquiry
from dsup.report.verdict_file import to_wire

SCENE = json.dumps([[], [], {}]).encode()


class Judges:
    """Aides that answer when a test says so.

    Attributes:
        asked: each judge that was asked and has not answered: its case, and whom to
            tell.
        watcher: a loop that a test turns.
        refusal: why no judge can be started, while that is told.
    """

    def __init__(self):
        self.asked = []
        self.refusal = None
        self.watcher = Loop()

    def bury(self, pid):
        """Kill the probe, and collect it."""
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)

    def start(self, work, _deadline_s, done):
        """Answer for the scene at once; a judge waits for the test."""
        if work.func is judging.work:
            self.asked.append((work.args[0], done))
        else:
            done(SCENE)

    def answer(self):
        """Have the oldest judge answer."""
        case, done = self.asked.pop(0)
        done(to_wire(judge(judging.timeline(case))))

    def refuse(self, error):
        """Have no process for the oldest judge."""
        self.refusal = error
        self.give_up()
        self.refusal = None

    def give_up(self):
        """Have the oldest judge killed, or given up: it has said nothing."""
        self.asked.pop(0)[1](b"")


class Desk:
    """A recorder without last words that keeps what is published."""

    def __init__(self):
        self.published = []
        self.sealed = None

    def ask_tails(self, _attempt):
        """Nobody can answer."""
        return False

    def publish(self, verdict):
        """Keep it."""
        self.published.append(verdict)

    def keep_samples(self, _attempt, lines):
        """Keep them."""
        self.samples = lines

    def keep_outcome(self, _state, _step):
        """No rank has an outcome here."""

    def seal(self, attempt, code, origin):
        """Note with what the run ends."""
        self.sealed = attempt, code, origin


@pytest.fixture
def court(small_job):
    """An inquiry into an attempt whose rank 1 was killed, its judges and its desk."""
    posted: list[ev.Event] = []
    judges, desk = Judges(), Desk()
    inquiry = Inquiry(small_job, judges, desk, Loop(), posted.append)
    inquiry.begin(0, "")
    inquiry.file.pids = {0: 4000, 1: 4001}
    inquiry.file.ended(ev.RankExited("rank_exited", 5.0, 0.0, 0, 1, -9, ()))
    yield SimpleNamespace(inquiry=inquiry, judges=judges, desk=desk, posted=posted)
    inquiry.stop()
    inquiry.file.close()


def judged(court):
    """Return (cause, final) of each answer that was told to the machine."""
    return [(event.cause, event.final) for event in court.posted]


def test_an_answer_is_published_and_told(court):
    """People see it at once; the machine hears the cause and the first rank."""
    court.inquiry.judge(final=False)
    court.judges.answer()

    [verdict] = court.desk.published
    [told] = court.posted
    assert (verdict.cause, verdict.first_ranks) == ("killed", (1,))
    assert (told.cause, told.first_ranks, told.status) == ("killed", (1,), -9)


def test_one_judge_works_at_a_time_and_the_last_one_knows_all(court):
    """What is asked for meanwhile is judged afterwards, by what is known then."""
    court.inquiry.judge(final=False)
    court.inquiry.judge(final=True)
    assert len(court.judges.asked) == 1

    court.judges.answer()
    court.judges.answer()

    assert judged(court) == [("killed", False), ("killed", True)]


def test_a_judge_that_says_nothing_leaves_the_wait_status(court):
    """Killed, hung or out of memory: the run goes on, and the status is said."""
    court.inquiry.judge(final=True)
    court.judges.give_up()

    [verdict] = court.desk.published
    assert judged(court) == [("", True)]
    assert (verdict.cause, verdict.certainty) == ("unknown", "unknown")
    assert "rank 1: SIGKILL" in verdict.summary


@pytest.mark.parametrize("hang", [None, Hang((0,), "frozen", 5.0)])
def test_why_there_is_no_judge_is_said_where_it_is_known(court, hang):
    """The kernel had no process for it: a limit can be raised."""
    court.inquiry.file.hang = hang
    court.inquiry.judge(final=True)
    court.judges.refuse(OSError(errno.EAGAIN, ""))

    [verdict] = court.desk.published
    assert (
        "the judge could not be started: resource temporarily unavailable "
        "(raise the limit of processes: ulimit -u, pids.max)"
    ) in verdict.summary


def test_a_judge_that_says_nothing_later_does_not_undo_an_answer(court):
    """What was published stays."""
    court.inquiry.judge(final=False)
    court.judges.answer()
    court.inquiry.judge(final=True)
    court.judges.give_up()

    assert [verdict.cause for verdict in court.desk.published] == ["killed"]
    assert judged(court) == [("killed", False), ("", True)]


def test_garbage_is_no_answer(court):
    """What is not a verdict says nothing."""
    court.inquiry.judge(final=True)
    _, done = court.judges.asked.pop()
    done(b"[1, 2, 3]")

    assert judged(court) == [("", True)]


def test_after_a_death_by_a_signal_the_kernel_is_asked_once_more(court):
    """It may explain half a second late; until then the inquiry is not done."""
    court.inquiry.judge(final=True)
    court.judges.answer()
    assert court.inquiry.busy

    due_in_s = court.inquiry.deadline() - time.monotonic()
    assert due_in_s <= 0.5
    select.select([], [], [], max(due_in_s, 0) + 0.01)
    court.inquiry.on_tick()
    court.judges.answer()

    assert not court.inquiry.busy
    assert len(court.desk.published) == 2


def asked_of_gpus(court):
    """Have a rank die while the GPUs have not told how they are."""
    court.inquiry.started([{"LOCAL_RANK": "0"}, {"LOCAL_RANK": "1"}])
    court.inquiry.ended(ev.RankExited("rank_exited", 5.0, 0.0, 0, 0, 1, ()))
    court.inquiry.judge(final=True)
    assert court.inquiry.busy


def hear_the_probe(court):
    """Turn the loop until the probe has answered: here is no GPU."""
    while court.inquiry.helpers:
        court.judges.watcher.turn(NEVER)


def test_the_judge_is_asked_when_the_gpus_have_answered(court):
    """An answer that comes at once is waited for, and is in the case."""
    asked_of_gpus(court)
    assert court.judges.asked == []
    hear_the_probe(court)

    [(case, _)] = court.judges.asked
    assert case.devices.probed.failed == b"-1"


def test_the_judge_is_asked_again_when_the_gpus_answer_late(court):
    """After a tenth of a second nobody waits; what comes then amends the verdict."""
    asked_of_gpus(court)
    select.select([], [], [], max(0, court.inquiry.deadline() - time.monotonic()))
    court.inquiry.on_tick()
    [(case, _)] = court.judges.asked
    assert case.devices.probed.failed == b""

    hear_the_probe(court)
    court.judges.answer()
    [(case, _)] = court.judges.asked
    assert case.devices.probed.failed == b"-1"


def test_an_answer_about_another_attempt_is_dropped(court):
    """A new attempt has begun; what comes now is late."""
    court.inquiry.judge(final=True)
    court.inquiry.begin(1, "")
    court.judges.answer()

    assert court.posted == []
    assert court.desk.published == []


def test_the_end_is_written_into_the_last_verdict(court):
    """verdict.json of the attempt that ended the run says its exit code."""
    court.inquiry.end(137, "dsup")

    assert court.desk.sealed == (0, 137, "dsup")


def test_a_judge_has_limits_of_its_own():
    """Memory that nobody needs is refused in the child, and the agent hears nothing."""
    loop = Loop()
    aides = Aides(loop)
    answers: list[bytes] = []

    def greedy():
        judging.limit_oneself()
        bytearray(2 * judging.MEMORY_BYTES)
        return b"had it"

    aides.start(greedy, time.monotonic() + 10, answers.append)
    while not answers:
        loop.turn(time.monotonic() + 10)

    assert answers == [b""]
