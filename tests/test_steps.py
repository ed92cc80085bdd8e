"""Steps are told to the journal: the first of an attempt, one a minute, at an end."""

import mmap

import pytest

from dsup.core.machine import initial
from dsup.core.plan import Policy
from dsup.core.state import Spec, Stage
from dsup.edges.heartbeats import Page
from dsup.steps import Steps
from dsup_runtime import contract

SPEC = Spec(2, 2.0, 20.0, False, Policy(0, (1.0,), 1.0, False, False))


class Held:
    """An attempt with a page on which a test writes what ranks would."""

    def __init__(self):
        self.page = Page(0, 2)

    def write(self, *steps, at_ns):
        """Store the last step of each rank."""
        shared = mmap.mmap(self.page.fd, contract.page_bytes(2))
        words = memoryview(shared).cast("q")
        for slot, step in enumerate(steps):
            first = contract.slot_offset(slot)
            words[first + contract.SLOT_STEP] = step
            words[first + contract.SLOT_PROGRESS_NS] = at_ns + slot
        words.release()


@pytest.fixture
def held():
    """Give a page of two ranks."""
    made = Held()
    yield made
    made.page.close()


def test_first_step_then_one_a_minute(held):
    """The step is the last that all finished, and as old as the ranks say."""
    told: list = []
    steps = Steps(held, told.append)
    running = initial(SPEC)._replace(stage=Stage.RUNNING)

    steps.look(running, 10.0)
    assert not told
    held.write(5, 4, at_ns=11_500_000_000)
    steps.look(running, 12.0)
    held.write(9, 8, at_ns=20_000_000_000)
    steps.look(running, 21.0)
    assert [event[:4] for event in told] == [("stepped", 12.0, 0, 4)]
    assert told[0].made_s == pytest.approx(11.5)
    steps.look(running, 72.0)
    assert told[1][:4] == ("stepped", 72.0, 0, 8)
    steps.look(running._replace(attempt=1), 73.0)
    assert told[2][:4] == ("stepped", 73.0, 1, 8)


def test_at_an_end_all_that_is_new_is_told_once(held):
    """A time that no rank can have meant is taken for now."""
    told: list = []
    steps = Steps(held, told.append)
    running = initial(SPEC)._replace(stage=Stage.RUNNING, best_step=6)
    held.write(7, 7, at_ns=2**62)

    steps.ended(running)
    steps.ended(running._replace(best_step=7))

    assert [event.kind for event in told] == ["stepped", "progressed"]
    assert told[0].made_s == told[0].at_s
