"""Stops that ``dsup stop`` asks for: SIGTERM to the ranks; asking twice is no hurry."""

import pytest

from dsup.core import commands as cmd
from dsup.core import events as ev
from dsup.core import journal
from dsup.core.state import Stage

INT, TERM = 2, 15
KILL = cmd.KillAll("kill_all", 0)


@pytest.fixture
def asked(node):
    """Give ``asked(now=False)``: somebody runs ``dsup stop``."""

    def ask(*, now=False):
        event = ev.Signalled("signalled", node.now_s, INT, 77, 1000, now=now)
        return node.tell(event)

    return ask


def test_the_ranks_are_terminated_and_the_exit_code_is_that_of_ctrl_c(node, asked):
    """The ranks get SIGTERM and the grace; the exit code is 130."""
    node.running()
    asked()
    assert node.stage is Stage.TERMINATING
    assert node.commands == (cmd.SignalRanks("signal_ranks", 0, (0, 1, 2), TERM),)

    for rank in range(3):
        node.exited(rank, 0)
    node.emptied()

    assert node.commands[-1] == cmd.Exit("exit", 130, "dsup")
    assert node.state.stop.asked_by == (1000, 77)


def test_ranks_that_stop_themselves_are_told_that_a_person_asked(node, asked):
    """They leave at one check, and none is signalled."""
    node.running().self_stopping()
    asked()
    node.ticked().counted(17)

    told = node.commands[0]
    assert (told.stop, told.rank, told.reason) == ("user", -1, "dsup stop")


def test_asking_again_changes_nothing(node, asked):
    """Two people, or one who is not sure, do not take the last checkpoint away."""
    node.running()
    asked()
    before = node.state
    node.after(5.0)
    asked()

    assert (node.state, node.commands) == (before, ())


@pytest.mark.parametrize("stopped", [False, True])
def test_now_kills_whatever_was_before(node, asked, stopped):
    """``--now`` waits for nothing, a moment after another stop, too."""
    node.running()
    if stopped:
        node.signalled(TERM)
    asked(now=True)

    assert (node.stage, node.commands) == (Stage.KILLING, (KILL,))


def test_now_in_the_pause_ends_the_run(node, asked):
    """Nothing is left to be killed then, and no restart follows."""
    node.running().exited(0, 3)
    node.exited(1, 1).exited(2, 1).emptied()
    stages = [node.stage]
    asked(now=True)
    stages.append(node.stage)

    assert stages == [Stage.DECIDING, Stage.OVER]


def test_a_journal_from_before_tells_of_a_signal():
    """Who sent it is then known as it always was."""
    line = '{"n":9,"event":"signalled","at_s":5.0,"signum":15,"sender_pid":1}'

    assert journal.decode(line).event == ev.Signalled("signalled", 5.0, TERM, 1)
