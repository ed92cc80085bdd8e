"""When stacks are taken of the attempt at hand, and what becomes of them."""

import json
import mmap
import os
import select
import signal
import subprocess
import sys
import time
from types import SimpleNamespace
from typing import Any

import pytest

from dsup import hangs
from dsup.core import machine
from dsup.core.limits import Limits
from dsup.core.plan import Policy
from dsup.core.state import Hang, Spec, Stage
from dsup.edges.group import Rank
from dsup.edges.heartbeats import Page
from dsup.hangs import CAPTURE_S, FINAL_S, Hangs
from dsup_runtime import contract

LIMIT_S = 600
POLICY = Policy(None, (10.0,), 1800.0, restart_on_user=False, checkpoints_known=False)
SPEC = Spec(2, 2.0, 25.0, keep_helpers=False, policy=POLICY)
RUNNING = machine.initial(SPEC)._replace(stage=Stage.RUNNING, alive=frozenset({0, 1}))


class Aides:
    """Aides that answer when the test wants it.

    Attributes:
        orders: of those that have not answered.
    """

    def __init__(self):
        self.orders = []

    def start(self, work, deadline_s, done, *, kept=()):
        """Take an order."""
        order = work.args[0]
        self.orders.append(
            SimpleNamespace(order=order, deadline_s=deadline_s, done=done, kept=kept)
        )

    def answer(self, **fields):
        """Have the oldest one answer; without fields it has been given up."""
        one = self.orders.pop(0)
        whole = {"ranks": [], "op": "", "place": "", "facts": [0, 0], "texts": []}
        one.done(json.dumps({**whole, **fields}).encode() if fields else b"")

    def answer_with(self, text, **fields):
        """Have the oldest one answer, and leave a text of rank 0 in the file."""
        order = self.orders[0].order
        raw = text.encode()
        os.pwrite(order.out, raw, order.start)
        place = [order.start, len(raw)]
        self.answer(texts=[[0, *place]], facts=place, **fields)


class Told:
    """All that comes of it."""

    def __init__(self):
        self.events, self.texts = [], []

    def keep_stacks(self, attempt, rank, text):
        """Take a rank's stacks."""
        self.texts.append((attempt, rank, text.decode()))

    def kinds(self):
        """Return the kinds of the events that are new since the last call."""
        kinds = [event.kind for event in self.events]
        self.events.clear()
        return kinds


@pytest.fixture
def frozen():
    """Give two processes, the second of which is frozen."""
    command = [sys.executable, "-c", f"import time; time.sleep({LIMIT_S})"]
    made = [subprocess.Popen(command) for _ in range(2)]
    made[1].send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, made[1].pid, os.WSTOPPED | os.WNOWAIT)
    yield made
    for one in made:
        one.kill()
        one.wait()


@pytest.fixture
def ranks(frozen):
    """Give them as ranks."""
    return {
        number: Rank(number, one.pid, -1, -1, -1, -1)
        for number, one in enumerate(frozen)
    }


@pytest.fixture
def watch(ranks):
    """Give ``watch()``: hangs of an attempt that runs, with fakes around it."""
    made = []

    def make(limits=Limits(), every_s=hangs.EVERY_S):  # noqa: B008 (a value)
        aides, told = Aides(), Told()
        job: Any = SimpleNamespace(hang_limits=limits, environment={"PATH": ""})
        made.append(Hangs(job, aides, told, told.events.append, every_s))
        made[-1].started(3, ranks)
        return made[-1], aides, told

    yield make
    for one in made:
        one.close()


def test_a_frozen_rank_is_told_of_once(watch):
    """And again only after it has gone on."""
    seen, _, told = watch()

    seen.look(RUNNING, None)
    (suspected,) = told.events
    seen.rest(0.0)

    assert (suspected.kind, suspected.attempt) == ("hang_suspected", 3)
    assert (suspected.ranks, suspected.why) == ((1,), "frozen")


def test_it_is_looked_once_a_second(watch):
    """However often the loop turns."""
    seen, _, told = watch()
    seen.look(RUNNING, None)
    told.kinds()

    for _ in range(100):
        seen.look(RUNNING, None)

    assert told.kinds() == []


@pytest.mark.parametrize("stage", [stage for stage in Stage if stage != Stage.RUNNING])
def test_in_no_other_stage_anybody_is_looked_at(watch, stage):
    """There the ranks are on their way out, with a deadline."""
    seen, _, told = watch()

    seen.look(RUNNING._replace(stage=stage), None)

    assert told.kinds() == []


@pytest.mark.slow
def test_ranks_that_go_on_while_the_last_stacks_are_taken_are_told(watch, frozen):
    """They hang no longer; that the agent itself has stood still is no step."""
    seen, _, told = watch()
    capturing = RUNNING._replace(stage=Stage.CAPTURING)
    seen.look(RUNNING, None)
    seen.capture({0, 1}, final=True)
    seen.rest(1e9)
    assert told.kinds() == ["hang_suspected"]

    frozen[1].send_signal(signal.SIGCONT)
    os.waitid(os.P_PID, frozen[1].pid, os.WCONTINUED)
    end_s = time.monotonic() + LIMIT_S
    while not told.events and time.monotonic() < end_s:
        select.select([], [], [], 0.05)  # a look comes once a second
        seen.look(capturing, None)

    assert told.kinds() == ["hang_cleared"]


def test_where_nobody_wants_it_nobody_is_looked_at(watch):
    """Stacks can be taken all the same."""
    seen, aides, told = watch(None)

    seen.look(RUNNING, None)
    seen.capture({0, 1}, final=True)
    aides.answer()

    assert told.kinds() == ["captured"]


def test_one_capture_is_taken_at_a_time(watch):
    """What was taken a moment ago is as good for the end of the attempt."""
    seen, aides, told = watch()

    seen.capture({0, 1}, final=False)
    seen.capture({0, 1}, final=True)

    assert len(aides.orders) == 1
    aides.answer(ranks=[1], op="all_reduce", place="a.py:1 in read")
    (captured,) = told.events
    assert captured[3:7] == (True, (1,), "all_reduce", "a.py:1 in read")


def test_suspicions_that_follow_each_other_are_put_off(watch):
    """One that lasts is looked into when it is time again."""
    seen, aides, _ = watch(every_s=1000.0)
    seen.look(RUNNING, None)
    seen.capture({0, 1}, final=False)
    aides.answer()

    seen.capture({0, 1}, final=False)

    assert aides.orders == []
    seen.capture({0, 1}, final=True)
    assert len(aides.orders) == 1


def test_a_doubt_that_lasts_is_looked_into_again(watch):
    """Said is only what is new; the vigil is told that it still holds."""
    seen, aides, told = watch(every_s=0.0)
    seen.look(RUNNING, None)
    seen.capture({0, 1}, final=False)
    aides.answer(ranks=[1])
    assert told.kinds() == ["hang_suspected", "captured"]

    seen.capture({0, 1}, final=False)
    aides.answer(ranks=[1])
    assert told.kinds() == []

    seen.capture({0, 1}, final=False)
    aides.answer(ranks=[0])
    assert told.kinds() == ["captured"]


def test_the_end_of_an_attempt_waits_ten_seconds_at_most(watch):
    """The machine goes on after that, with or without."""
    seen, aides, _ = watch()
    seen.capture({0, 1}, final=True)
    final = aides.orders[0]
    aides.answer()
    other, others, _ = watch()
    other.capture({0, 1}, final=False)

    assert final.deadline_s - others.orders[0].deadline_s < FINAL_S - CAPTURE_S + 1
    assert final.order.until_s < final.deadline_s


def test_an_aide_that_was_given_up_is_an_answer(watch):
    """Nothing was found, and the attempt is ended all the same."""
    seen, aides, told = watch()

    seen.capture({0, 1}, final=True)
    aides.answer()

    (captured,) = told.events
    assert captured[3:] == (True, (), "", "", False)


def test_the_file_of_a_rank_grows_with_each_capture(watch):
    """The last two are for the judge."""
    seen, aides, told = watch(every_s=0.0)
    for text in ("one ", "two ", "three "):
        seen.capture({0, 1}, final=False)
        aides.answer_with(text)

    assert told.texts[-1] == (3, 0, "one two three ")
    file = SimpleNamespace(attempt=3, hang=None, stacks=b"", traces=b"")
    seen.testify(file, RUNNING)
    assert file.stacks == b"two three "


def test_a_hang_that_is_only_looked_at_makes_nothing_grow(watch):
    """Kept are the first capture, and the last two."""
    seen, aides, told = watch(every_s=0.0)
    starts = []
    for number in range(9):
        seen.capture({0, 1}, final=False)
        starts.append(aides.orders[0].order.start)
        aides.answer_with(f"{number} ")

    assert told.texts[-1] == (3, 0, "0 7 8 ")
    assert len(set(starts)) == 3
    assert starts.count(0) == 1


def test_an_answer_of_an_attempt_that_is_over_is_dropped(watch, ranks):
    """Its ranks are dead, and the next ones have done nothing."""
    seen, aides, told = watch()
    seen.capture({0, 1}, final=True)
    seen.close()
    seen.started(4, ranks)

    aides.answer(ranks=[1])

    assert told.kinds() == []


def test_the_judge_is_told_of_its_own_attempt_only(watch):
    """And of a hang only where the attempt was ended for it."""
    seen, aides, _ = watch()
    seen.capture({0, 1}, final=False)
    aides.answer_with("proof")
    seen.close()
    own = SimpleNamespace(attempt=3, hang=None, stacks=b"")
    other = SimpleNamespace(attempt=4, hang=None, stacks=b"")

    seen.testify(own, RUNNING._replace(hang=Hang((1,), "frozen", 9.0)))
    seen.testify(other, RUNNING)

    assert own.stacks == b"proof"
    assert other.stacks == b""


@pytest.fixture
def page():
    """Give a page of two ranks."""
    made = Page(0, 2)
    yield made
    made.close()


@pytest.mark.parametrize(
    ("later_s", "missing", "op"),
    [
        pytest.param(60.0, (), "", id="it goes on"),
        pytest.param(-60.0, (1,), "all_reduce", id="it waits"),
    ],
)
def test_nobody_is_missed_by_a_rank_that_makes_steps(watch, page, later_s, missing, op):
    """Loops that do not depend on each other may be at one place by chance."""
    seen, aides, told = watch()
    made_ns = int((time.monotonic() + later_s) * 1e9)
    with mmap.mmap(page.fd, 0) as mapping, memoryview(mapping).cast("q") as words:
        words[contract.slot_offset(0) + contract.SLOT_PROGRESS_NS] = made_ns
    seen.look(RUNNING, page)
    told.kinds()

    seen.capture({0, 1}, final=False)
    aides.answer(ranks=[1], op="all_reduce")

    (captured,) = told.events
    assert (captured.ranks, captured.op) == (missing, op)
