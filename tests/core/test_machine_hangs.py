"""Hangs: suspected ones do no harm, confirmed ones are captured and then ended."""

import pytest

from dsup.core import commands as cmd
from dsup.core.state import Hang, Stage

SIGKILL, SIGTERM = 9, 15
CAPTURE = cmd.Capture("capture", 0, final=False)
CAPTURE_AT_LAST = cmd.Capture("capture", 0, final=True)


def test_a_suspicion_has_stacks_taken_and_nothing_else(node):
    """The ranks go on: nobody is signalled, and no deadline runs."""
    node.running().suspected(1)

    assert node.commands == (CAPTURE,)
    assert (node.stage, node.due_in_s) == (Stage.RUNNING, float("inf"))


def test_who_goes_on_is_suspected_no_more(node):
    """A cleared suspicion leaves no trace in the state."""
    node.running()
    before = node.state

    node.suspected(1).cleared(1)

    assert (node.state, node.commands) == (before, ())


def test_what_stacks_show_is_remembered(node):
    """Who did not come, where the others wait and where that rank is go together."""
    node.running().suspected(0, 1, 2)
    node.captured(1, op="all_reduce", place="dataset.py:88 in read")

    found = Hang((1,), "absent", node.now_s, "all_reduce", "dataset.py:88 in read")
    assert (node.state.suspected, node.commands) == (found, ())


def test_stacks_that_show_nothing_change_nothing(node):
    """Where everybody came the suspicion stays as it was."""
    node.running().suspected(0, 1, 2)
    before = node.state

    node.captured(op="all_reduce")

    assert (node.state, node.commands) == (before, ())


def test_who_came_after_all_is_not_missing_any_more(node):
    """Later stacks correct earlier ones; the suspicion itself stays."""
    node.running().suspected(0, 2).captured(1, op="all_reduce", place="d.py:8 in r")
    node.captured()

    assert node.state.suspected == Hang((1,), "stalled", node.now_s)


def test_a_frozen_rank_stays_frozen_when_it_is_missing_too(node):
    """Why it did not come is known."""
    node.running().suspected(1, why="frozen").captured(1, op="all_reduce")
    assert node.state.suspected.why == "frozen"

    node.confirmed(1, why="limit")
    assert node.state.hang.why == "frozen"


def test_a_confirmed_hang_is_captured_before_anybody_is_signalled(node):
    """Stacks come first: a signal would destroy what they show."""
    node.running().confirmed(1)

    assert (node.stage, node.due_in_s) == (Stage.CAPTURING, 10.0)
    assert node.commands == (CAPTURE_AT_LAST,)


@pytest.mark.parametrize("answer", ["captured", "silence"])
def test_after_the_capture_the_attempt_fails(node, answer):
    """The ranks get SIGTERM and the judge its order, with stacks or without."""
    node.capturing()

    if answer == "captured":
        node.captured(1, final=True)
    else:
        node.ticked()

    assert node.stage is Stage.TERMINATING
    told = 0, "peer", 1, "rank 1 hangs", node.state.kill_s
    assert node.commands == (
        cmd.PublishStop("publish_stop", 0, *told),
        cmd.SignalRanks("signal_ranks", 0, (0, 1, 2), SIGTERM),
        cmd.Judge("judge", 0, final=False),
    )


def test_a_capture_of_before_does_not_end_the_last_one(node):
    """The answer to a suspicion may come when the hang is confirmed already."""
    node.running().suspected(1).confirmed(1).captured(1)

    assert node.stage is Stage.CAPTURING


def test_a_hang_that_stacks_confirm_keeps_what_they_showed(node):
    """The place of the rank that did not come is known when the hang is confirmed."""
    node.running().suspected(0, 1, 2).captured(1, op="all_reduce", place="d.py:8 in r")

    node.confirmed(1)

    assert (node.state.hang.op, node.state.hang.place) == ("all_reduce", "d.py:8 in r")


def test_a_hang_that_is_only_reported_ends_nothing(new_node):
    """With --on-hang report the state knows of it, and that is all."""
    node = new_node(on_hang="report").running().confirmed(1)

    assert (node.stage, node.commands) == (Stage.RUNNING, ())
    assert node.state.suspected.ranks == (1,)
    assert node.state.hang is None


@pytest.mark.parametrize("where", ["parking", "settling", "terminating", "killing"])
def test_ranks_on_their_way_out_do_not_hang(new_node, where):
    """Each of these stages has a deadline of its own."""
    node = getattr(new_node(), where)()
    before = node.state

    node.suspected(0).confirmed(0)

    assert (node.state, node.commands) == (before, ())


def test_a_hang_is_restarted_after_the_pause(node):
    """The pause is counted from the moment at which the hang was confirmed."""
    node.capturing()
    confirmed_s = node.now_s
    node.after(1).captured(1, final=True)
    for rank in range(3):
        node.exited(rank, -SIGTERM)
    node.emptied().judged("hang", (1,), 1, "hang read").searched(7)

    assert node.proposed.restart_at_s == confirmed_s + 10.0


def ended(node, *verdict):
    """End an attempt whose ranks heed SIGTERM, with a verdict."""
    node.captured(1, final=True)
    for rank in range(3):
        node.exited(rank, -SIGTERM)
    return node.emptied().judged(*verdict).searched(7)


def test_where_no_judge_answers_a_hang_is_a_hang(node):
    """The machine knows by itself why it ended the attempt."""
    node = ended(node.capturing(), "")
    node.echoed().ticked()

    assert node.state.signature == ("hang", 1, 1, "")


@pytest.mark.parametrize("progressed", [False, True])
def test_a_hang_at_the_same_place_ends_the_run_unless_there_was_progress(
    node, progressed
):
    """Once more at the same place and no new step: what follows would be the same."""
    ended(node.capturing(), "hang", (1,), 1, "hang read").echoed().ticked()
    node.running()
    if progressed:
        node.progressed(9)
    ended(node.confirmed(1), "hang", (1,), 1, "hang read").echoed()

    assert node.exit_code == (None if progressed else 1)


def test_a_hang_at_another_place_is_restarted(node):
    """Two hangs are not one that repeats itself."""
    ended(node.capturing(), "hang", (1,), 1, "hang read").echoed().ticked()
    ended(node.running().confirmed(1), "hang", (1,), 1, "hang write").echoed()

    assert node.exit_code is None


def test_a_hang_that_is_to_end_the_run_does(new_node):
    """--on-hang stop goes before --max-restarts."""
    node = new_node(on_hang="stop", max_restarts=3).capturing()
    ended(node, "hang", (1,), 1, "hang read").echoed()

    assert node.exit_code == 194


def test_a_stop_while_capturing_is_passed_on_at_once(node):
    """Nobody waits for stacks once the run is to end; the code is the signal's."""
    node.capturing().signalled(SIGTERM)

    assert node.stage is Stage.TERMINATING
    assert node.commands[1].ranks == (0, 1, 2)

    for rank in range(3):
        node.exited(rank, -SIGTERM)
    assert node.emptied().exit_code == 143


def test_ranks_that_all_end_while_capturing_are_judged_at_once(node):
    """Their helpers may linger, but nothing waits for stacks of the dead."""
    node.capturing().exited(1, -SIGKILL).exited(0, 1).exited(2, 1)

    assert node.stage is Stage.TERMINATING
    assert cmd.Judge("judge", 0, final=False) in node.commands


def test_ranks_that_go_on_while_capturing_are_let_go_on(node):
    """Nobody was signalled yet; the answer to the last look ends nothing any more."""
    node.running()
    before = node.state

    node.confirmed(1).cleared(1)
    assert (node.state, node.commands) == (before, ())

    node.captured(1, final=True)
    assert (node.stage, node.commands) == (Stage.RUNNING, ())


@pytest.mark.parametrize("what", ["a death", "a signal"])
def test_an_end_that_has_begun_is_not_called_off(node, what):
    """A rank has failed, or was told to leave: the others would wait for it."""
    if what == "a death":
        node.capturing().exited(2, 1).cleared(1)
        assert node.stage is Stage.CAPTURING
    else:
        node.capturing().captured(1, final=True).cleared(1)
        assert node.stage is Stage.TERMINATING


def test_a_rank_that_ends_while_capturing_is_not_the_first_to_fail(node):
    """The attempt had failed before: the pause and the cause are the hang's."""
    node.capturing().exited(2, -SIGKILL)

    assert node.stage is Stage.CAPTURING
    assert node.state.failed is None


def test_ranks_that_all_succeed_while_capturing_have_succeeded(node):
    """A hang that dissolved in the last second is none."""
    node.capturing().exited(0, 0).exited(1, 0).exited(2, 0).emptied()

    assert node.exit_code == 0


def test_a_straggler_is_remembered_until_it_keeps_up(node):
    """People are told; nothing is done to it."""
    node.running().straggles(2, 1.8)
    assert (node.state.slow, node.commands) == ({2}, ())

    node.straggles(2, 0.0)
    assert node.state.slow == frozenset()


def test_an_early_exit_is_looked_at_once_after_a_second(node):
    """Who goes on without it is known then; later ends set no further look."""
    node.running().exited(1, 0)
    assert (node.stage, node.due_in_s) == (Stage.RUNNING, 1.0)

    node.ticked()
    assert (node.stage, node.due_in_s) == (Stage.RUNNING, float("inf"))

    node.exited(0, 0)
    assert node.due_in_s == float("inf")
