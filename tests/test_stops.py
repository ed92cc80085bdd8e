"""The agent's half of a stop: what is seen on the page, and what is stored there."""

import mmap
from types import SimpleNamespace

import pytest

from dsup.core import commands as cmd
from dsup.core.plan import Policy
from dsup.core.state import Parking, Spec, Stage, State
from dsup.edges.heartbeats import Page
from dsup.stops import Stops
from dsup_runtime import contract

POLICY = Policy(None, (10.0,), 1800.0, restart_on_user=False, checkpoints_known=False)
SPEC = Spec(3, 2.0, 25.0, keep_helpers=False, policy=POLICY)
RUNNING = State(SPEC, stage=Stage.RUNNING, alive=frozenset(range(3)))


@pytest.fixture
def held():
    """Give a page of three ranks: ``set(rank, word, value)`` is what a rank stores."""
    page = Page(0, 3)
    with mmap.mmap(page.fd, 0) as mapping, memoryview(mapping).cast("q") as words:

        def store(rank, word, value):
            words[contract.slot_offset(rank) + word] = value

        posted: list = []
        attempt = SimpleNamespace(page=page)
        stops = Stops(attempt, posted.append)
        yield SimpleNamespace(
            attempt=attempt, stops=stops, posted=posted, set=store, words=words
        )
    page.close()


def flag(held, *ranks):
    """Have these ranks' loops ask whether to stop."""
    for rank in ranks:
        held.set(rank, contract.SLOT_FLAGS, contract.FLAG_STOPS_ITSELF)


def test_each_rank_is_told_of_once(held):
    """A journal holds who can stop itself, and no rank twice."""
    assert held.stops.newly_self_stopping(RUNNING) is None
    flag(held, 0, 2)
    assert held.stops.newly_self_stopping(RUNNING).ranks == (0, 2)

    flag(held, 1)
    known = RUNNING._replace(self_stopping=frozenset({0, 2}))

    assert held.stops.newly_self_stopping(known).ranks == (1,)
    everyone = RUNNING._replace(self_stopping=frozenset(range(3)))
    assert held.stops.newly_self_stopping(everyone) is None


@pytest.mark.parametrize(
    ("wishes", "told"),
    [
        pytest.param({}, [], id="nobody"),
        pytest.param({1: "user"}, [(1, "user")], id="one"),
        pytest.param({0: "user", 2: "error"}, [(2, "error")], id="the greatest"),
        pytest.param({2: "peer", 1: "peer"}, [(1, "peer")], id="the first of equals"),
    ],
)
def test_a_wish_is_seen_without_its_note(held, wishes, told):
    """The doorbell may be lost: the page has the wish all the same."""
    for rank, kind in wishes.items():
        held.set(rank, contract.SLOT_WANTED, contract.STOP_KINDS.index(kind))
    held.stops.look(RUNNING)

    assert [(e.rank, e.stop) for e in held.posted] == told


@pytest.mark.parametrize(
    ("parking", "news"),
    [
        pytest.param(Parking("user", 0, ""), 1, id="a smaller one is known"),
        pytest.param(Parking("error", 0, ""), 0, id="as great a one is known"),
        pytest.param(Parking("user", -1, ""), 1, id="a person's is smaller"),
        pytest.param(Parking("user", 0, "", True, 18), 0, id="a stop is published"),
    ],
)
def test_only_a_greater_wish_is_news(held, parking, news):
    """What the state knows is not told again and again."""
    held.set(1, contract.SLOT_WANTED, contract.STOP_KINDS.index("error"))
    held.stops.look(RUNNING._replace(stage=Stage.PARKING, parking=parking))

    assert len(held.posted) == news


def test_a_wish_that_a_persons_outweighs_is_no_news(held):
    """It would be told in every turn."""
    held.set(1, contract.SLOT_WANTED, contract.STOP_KINDS.index("preempt"))
    parking = Parking("user", -1, "SIGINT")
    held.stops.look(RUNNING._replace(stage=Stage.PARKING, parking=parking))

    assert held.posted == []


@pytest.mark.parametrize("stage", [Stage.TERMINATING, Stage.KILLING, Stage.DECIDING])
def test_the_page_is_looked_at_only_while_it_matters(held, stage):
    """Ranks that dsup has signalled want a stop of necessity."""
    flag(held, 0)
    held.set(1, contract.SLOT_WANTED, 5)
    state = RUNNING._replace(stage=stage)
    held.stops.look(state)

    assert held.posted == []
    assert held.stops.newly_self_stopping(state) is None


def test_a_stop_goes_over_the_page(held):
    """Frozen, counted, published: what ranks read, and what the machine hears."""
    held.stops.carry_out(cmd.FreezePage("freeze_page", 0, 12.5))
    for rank, count in enumerate((17, 18, -1)):
        held.set(rank, contract.SLOT_SEQUENCE, count)
    held.stops.carry_out(cmd.CountChecks("count_checks", 0))
    held.stops.carry_out(cmd.PublishStop("publish_stop", 0, 19, "user", 1, "why", 12.5))

    assert [(e.kind, e.last) for e in held.posted] == [("checks_counted", 18)]
    assert held.words[contract.HEADER_FREEZE] == 1
    assert held.words[contract.HEADER_STOP_STEP] == 19


def test_a_failed_attempt_is_told_on_a_page_that_nobody_froze(held):
    """Whoever looks at it goes on to no check."""
    told = 0, contract.AT_ONCE, "peer", 2, "rank 2 died of SIGKILL", 12.5
    held.stops.carry_out(cmd.PublishStop("publish_stop", *told))

    assert held.words[contract.HEADER_FREEZE] == 1
    assert held.words[contract.HEADER_STOP_STEP] == contract.AT_ONCE
    assert held.words[contract.HEADER_STOP_RANK] == 2


def test_without_a_page_nothing_is_done(held):
    """An attempt that is closed, or was never prepared, has none."""
    held.attempt.page = None
    held.stops.look(RUNNING)
    held.stops.carry_out(cmd.CountChecks("count_checks", 0))

    assert held.posted == []
    assert held.stops.newly_self_stopping(RUNNING) is None
