"""Lingering: when the last rank has ended after a failure, helpers may end too."""

import pytest

from dsup.core import commands as cmd
from dsup.core.enter import KILL_S, LINGER_S
from dsup.core.state import Stage

INT, TERM = 2, 15
KILL_ALL = (cmd.KillAll("kill_all", 0),)


def test_helpers_may_end_by_themselves(node):
    """When the last rank has ended, what the ranks left behind has a second to go.

    One of them, Python's resource tracker, unlinks the ranks' shared memory.
    """
    node.terminating().exited(0, -TERM)
    assert node.due_in_s == 20

    node.exited(2, 0)

    assert (node.stage, node.commands) == (Stage.TERMINATING, ())
    assert node.due_in_s == LINGER_S == 1


def test_helpers_that_do_not_end_by_themselves_are_killed(node):
    """After that second what the ranks left behind is killed."""
    node.lingering().ticked()

    assert (node.stage, node.commands) == (Stage.KILLING, KILL_ALL)
    assert node.due_in_s == KILL_S


def test_helpers_that_have_ended_are_not_waited_for(node):
    """A group found empty goes the way of all groups at once, through KILLING."""
    node.lingering().after(0.1).group_empty()
    assert (node.stage, node.commands) == (Stage.KILLING, KILL_ALL)

    node.group_empty()

    assert node.stage is Stage.DECIDING


@pytest.mark.parametrize(
    ("late_s", "left_s"), [(18.0, 1.0), (19.0, 1.0), (19.75, 0.25)]
)
def test_helpers_get_no_more_than_the_grace(node, late_s, left_s):
    """What is left of the grace when the last rank ends is all that there is."""
    node.terminating().exited(0, -TERM).after(late_s).exited(2, -TERM)

    assert node.due_in_s == left_s


def test_a_group_is_not_empty_while_a_rank_lives(node):
    """News that cannot be are no reason to close an attempt."""
    node.terminating().exited(0, -TERM)
    before = node.state

    node.group_empty()

    assert (node.state, node.commands) == (before, ())


def test_a_stop_while_helpers_end_prevents_the_restart(node):
    """With no rank alive there is nobody to pass it on to, and no more time for it."""
    node.lingering().after(0.4).signalled(TERM)
    assert (node.stage, node.commands) == (Stage.TERMINATING, ())
    assert node.due_in_s == pytest.approx(0.6)

    node.ticked().group_empty()

    assert (node.stage, node.exit_code) == (Stage.OVER, 143)


def test_a_second_sigint_does_not_wait_for_helpers(node):
    """Who presses Ctrl-C again does not want to wait for them either."""
    node.running().signalled(INT).after(0.9)
    node.exited(0, -INT).exited(1, -INT).exited(2, -INT)
    assert node.stage is Stage.TERMINATING

    node.after(0.1).signalled(INT)

    assert (node.stage, node.commands) == (Stage.KILLING, KILL_ALL)


def test_a_second_stop_gives_helpers_no_more_time(node):
    """Five seconds are for ranks; what they left behind keeps its one."""
    node.running().signalled(TERM).after(0.5)
    node.exited(0, 0).exited(1, 0).exited(2, 0).after(0.5).signalled(TERM)

    assert node.due_in_s == 0.5
