"""Stops: one deadline, signals that count, and how impatience shortens it."""

import pytest

from dsup.core import commands as cmd
from dsup.core.state import Stage

HUP, INT, QUIT, KILL, USR1, USR2, TERM = 1, 2, 3, 9, 10, 12, 15


def signal_ranks(*ranks, signum=TERM):
    """Return the order to signal ranks of attempt 0."""
    return (cmd.SignalRanks("signal_ranks", 0, ranks, signum),)


@pytest.mark.parametrize("signum", [HUP, INT, QUIT, TERM])
def test_the_signal_that_came_is_passed_on(node, signum):
    """A stop reaches the ranks as the signal that the agent got."""
    node.running().signalled(signum)

    assert node.stage is Stage.TERMINATING
    assert node.commands == signal_ranks(0, 1, 2, signum=signum)


@pytest.mark.parametrize(
    ("signum", "code"),
    [
        pytest.param(HUP, 129, id="HUP"),
        pytest.param(INT, 130, id="INT"),
        pytest.param(QUIT, 131, id="QUIT"),
        pytest.param(TERM, 143, id="TERM"),
    ],
)
@pytest.mark.parametrize("status", [0, 3, -TERM])
def test_a_stopped_run_has_the_code_of_its_signal(node, signum, code, status):
    """The exit code tells the stop, also when every rank then exits 0."""
    node.running().signalled(signum)
    for rank in range(3):
        node.exited(rank, status)
    node.emptied()

    close = cmd.CloseAttempt("close_attempt", 0)
    assert node.commands == (close, cmd.Exit("exit", code, "dsup"))


@pytest.mark.parametrize("signum", [HUP, INT, QUIT])
def test_half_the_grace_brings_sigterm_after_another_signal(node, signum):
    """Ranks that did not heed another signal get SIGTERM at half the grace."""
    node.running().signalled(signum).exited(1, 0)
    assert node.due_in_s == 10

    node.ticked()
    assert (node.stage, node.commands) == (Stage.TERMINATING, signal_ranks(0, 2))
    assert node.due_in_s == 10

    node.ticked()
    assert node.stage is Stage.KILLING


def test_half_the_grace_brings_nothing_after_sigterm(node):
    """Ranks that got SIGTERM are not sent it again: the next look is the end."""
    node.running().signalled(TERM)
    assert node.due_in_s == 20

    node.ticked()

    assert node.commands == (cmd.KillAll("kill_all", 0),)


@pytest.mark.parametrize("signum", [INT, TERM])
def test_signals_within_a_second_count_once(node, signum):
    """What a terminal, a shell and a scheduler send together is one stop."""
    node.running().signalled(signum).after(0.9).signalled(signum)

    assert (node.stage, node.commands) == (Stage.TERMINATING, ())
    assert node.state.stop.times == 1


def test_a_flood_of_signals_is_counted_by_the_second(node):
    """A signal counts when a second has passed since the last one that counted."""
    node.running().signalled(TERM)
    for _ in range(4):
        node.after(0.5).signalled(TERM)

    assert node.state.stop.times == 3


@pytest.mark.parametrize("first", [INT, TERM, HUP])
def test_a_second_sigint_kills_now(node, first):
    """Who presses Ctrl-C again does not want to wait."""
    node.running().signalled(first).after(1).signalled(INT)

    assert (node.stage, node.commands) == (
        Stage.KILLING,
        (cmd.KillAll("kill_all", 0),),
    )


@pytest.mark.parametrize("signum", [TERM, HUP, QUIT])
def test_a_second_stop_leaves_five_seconds(node, signum):
    """A second signal that is not SIGINT shortens the grace to 5 s."""
    node.running().signalled(signum).after(1).signalled(signum)
    assert (node.stage, node.commands) == (Stage.TERMINATING, ())
    assert node.due_in_s == 5

    node.ticked()

    assert node.stage is Stage.KILLING


def test_a_second_stop_of_another_kind_reaches_the_ranks(node):
    """Ranks that sleep through SIGINT are sent the SIGTERM that follows it."""
    node.running().signalled(INT).after(1).signalled(TERM)

    assert node.commands == (cmd.SignalRanks("signal_ranks", 0, (0, 1, 2), TERM),)
    assert node.due_in_s == 5


def test_a_second_stop_never_lengthens_the_grace(node):
    """With less than 5 s left a second stop changes nothing."""
    node.running().signalled(TERM).after(18).signalled(TERM)

    assert node.due_in_s == 2


def test_a_third_stop_kills_now(node):
    """After three signals there is nothing left to wait for."""
    node.running().signalled(TERM)
    node.after(1).signalled(TERM).after(1).signalled(TERM)

    assert node.stage is Stage.KILLING


def test_the_first_signal_decides_the_code(node):
    """A run stopped by SIGTERM exits 143 however it was hurried."""
    node.running().signalled(TERM).after(1).signalled(INT)
    for rank in range(3):
        node.exited(rank, -KILL)
    node.emptied()

    assert node.exit_code == 143


def test_a_stop_while_settling_ends_the_others(node):
    """A stop does not wait for what other ranks might still tell."""
    node.settling().signalled(INT)

    assert node.stage is Stage.TERMINATING
    assert node.commands[1:2] == signal_ranks(0, 2, signum=INT)


def test_a_stop_while_ranks_are_being_ended_prevents_the_restart(node):
    """A stop during the clean-up after a failure wins: no restart, the stop's code."""
    node.terminating().signalled(TERM)
    assert (node.stage, node.commands) == (Stage.TERMINATING, ())

    node.exited(0, -TERM).exited(2, -TERM).emptied()

    assert (node.stage, node.exit_code) == (Stage.OVER, 143)


def test_a_stop_while_killing_prevents_the_restart(node):
    """A stop while everything is being killed needs no further order."""
    node.killing().signalled(INT)
    assert (node.stage, node.commands) == (Stage.KILLING, ())

    node.group_empty()

    assert (node.stage, node.exit_code) == (Stage.OVER, 130)


@pytest.mark.parametrize("when", ["deciding", "pausing"])
def test_a_stop_in_the_pause_ends_the_run_at_once(node, when):
    """Nothing is alive in the pause, so a stop needs no clean-up."""
    getattr(node, when)().signalled(TERM)

    assert node.stage is Stage.OVER
    assert node.commands == (cmd.Exit("exit", 143, "dsup"),)


def test_a_stop_between_preparation_and_first_rank_kills(node):
    """A stop that overtakes the news of the first rank leaves no rank behind."""
    node.launched().prepared().signalled(TERM).started(0, 1, 2)

    assert node.ordered[-1] == cmd.KillAll("kill_all", 0)
    assert node.stage is Stage.KILLING


def test_a_stop_after_success_hurries_but_does_not_undo_it(node):
    """A stop while helpers are awaited kills them; the run has still succeeded."""
    node.leaving().helpers_left().signalled(TERM)
    assert node.stage is Stage.KILLING

    node.group_empty()

    assert node.exit_code == 0


@pytest.mark.parametrize("signum", [USR1, USR2])
def test_user_signals_are_passed_on_and_the_run_goes_on(node, signum):
    """USR1 and USR2 are the ranks' own business."""
    node.running().exited(2, 0).signalled(signum)

    assert node.stage is Stage.RUNNING
    assert node.commands == (cmd.PassOn("pass_on", 0, (0, 1), signum),)
    assert node.state.stop is None


def test_a_user_signal_stops_a_run_that_was_told_so(new_node):
    """--signals-to-handle SIGUSR1: the ranks get it, and the run ends with 138."""
    node = new_node(also_stop=(USR1,)).running().signalled(USR1)

    assert node.stage is Stage.TERMINATING
    assert node.commands == signal_ranks(0, 1, 2, signum=USR1)

    for rank in range(3):
        node.exited(rank, 0)
    assert node.emptied().exit_code == 138


def test_the_other_user_signal_is_still_passed_on(new_node):
    """Only what was named stops a run."""
    node = new_node(also_stop=(USR1,)).running().signalled(USR2)

    assert node.commands == (cmd.PassOn("pass_on", 0, (0, 1, 2), USR2),)


def test_a_stop_that_comes_while_killing_changes_no_limit(node):
    """Once everything is being killed, impatience cannot hurry it."""
    node.running().signalled(INT).after(1).signalled(INT)
    due_in_s = node.due_in_s

    node.after(1).signalled(INT)

    assert (node.stage, node.commands) == (Stage.KILLING, ())
    assert node.due_in_s == due_in_s - 1


def test_a_stop_while_settling_does_not_lose_the_verdict(node):
    """The rank that failed first is judged, though the run ends as a stop."""
    node.settling().signalled(15)

    assert cmd.Judge("judge", 0, final=False) in node.commands
    assert node.exited(0, -15).exited(2, -15).emptied().exit_code == 143
