"""When ranks are asked whether they are at work, and how often."""

import os

import pytest

from dsup.core.pulse import Look, Pulse
from dsup.core.watch import Suspicion, Watch
from dsup.working import EVERY_S, OFTEN_S, SELDOM_S, Working

OWN = {0: os.getpid()}
SILENT = Watch(
    pulses={0: Pulse(Look(0), 1.0)}, suspected={0: Suspicion(0, "silent", 1.0, 2.0)}
)


def write():
    """Write something, to whatever."""
    with open(os.devnull, "wb", buffering=0) as file:
        file.write(b"a line")


def test_nobody_is_asked_while_all_make_steps():
    """A census would cost more than all other looks."""
    working = Working(OWN, None)

    assert working.look(9.0, OWN, Watch(), blind=False) == {}
    assert working.due_s == 0.0


def test_a_rank_without_a_step_is_asked_every_few_seconds():
    """This one works: it runs the test."""
    working = Working(OWN, None)
    first = working.look(10.0, OWN, SILENT, blind=False)
    write()
    seen = working.look(15.0, OWN, SILENT._replace(active=first), blind=False)

    assert (first[0].busy_s, seen[0].busy_s) == (10.0, 15.0)
    assert working.due_s == 15.0 + EVERY_S


def test_what_it_was_asked_for_is_no_work():
    """Its stacks."""
    working = Working(OWN, None)
    first = working.look(10.0, OWN, SILENT, blind=False)
    write()
    working.forgive(14.0, OWN)
    again = working.look(99.0, OWN, SILENT._replace(active=first), blind=False)

    assert again[0] == first[0]


@pytest.mark.parametrize(
    ("unseen_s", "every_s"),
    [(3.0, OFTEN_S), (80.0, 10.0), (1200.0, SELDOM_S)],
)
def test_where_output_has_a_limit_ranks_are_asked_all_the_time(unseen_s, every_s):
    """Some times within that limit."""
    working = Working(OWN, unseen_s)

    assert working.look(9.0, OWN, Watch(), blind=True)
    assert working.due_s == 9.0 + every_s
