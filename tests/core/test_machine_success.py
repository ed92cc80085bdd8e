"""Success: helpers that are left get the grace, and nothing else is left behind."""

from dsup.core import commands as cmd
from dsup.core.state import Stage

KILL_ALL = (cmd.KillAll("kill_all", 0),)


def test_success_looks_for_helpers_before_it_ends(node):
    """When all ranks ended with 0, what they left behind has the grace to go."""
    node.leaving()

    assert (node.stage, node.commands) == (Stage.TERMINATING, ())
    assert node.due_in_s == 20


def test_success_with_nothing_left_is_proven_and_over(node):
    """A run that succeeded goes through KILLING, then exits 0 as its ranks did."""
    node.leaving().group_empty()
    assert (node.stage, node.commands) == (Stage.KILLING, KILL_ALL)

    node.group_empty()

    close = cmd.CloseAttempt("close_attempt", 0)
    assert node.commands == (close, cmd.Exit("exit", 0, "rank"))


def test_helpers_left_after_success_are_asked_to_end(node):
    """Helpers that outlive a success get SIGTERM."""
    node.leaving().helpers_left()

    assert node.commands == (cmd.TerminateHelpers("terminate_helpers", 0),)


def test_helpers_that_do_not_end_in_the_grace_are_killed(node):
    """At the end of the grace helpers are killed; the run has still succeeded."""
    node.leaving().helpers_left().ticked()
    assert (node.stage, node.commands) == (Stage.KILLING, KILL_ALL)

    node.group_empty()

    assert node.exit_code == 0


def test_kept_helpers_are_left_alone(new_node):
    """With --keep-helpers a success is over at once: nothing is signalled."""
    node = new_node(keep_helpers=True).leaving()

    close = cmd.CloseAttempt("close_attempt", 0)
    assert node.stage is Stage.OVER
    assert node.commands == (close, cmd.Exit("exit", 0, "rank"))


def test_a_failed_run_never_keeps_helpers(new_node):
    """--keep-helpers spares what outlives a success, not what outlives a failure."""
    node = new_node(keep_helpers=True).lingering().ticked()

    assert (node.stage, node.commands) == (Stage.KILLING, KILL_ALL)
