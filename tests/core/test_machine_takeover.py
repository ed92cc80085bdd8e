"""What the machine makes of the failures of a run that it goes on with."""

import pytest

from dsup.core import events as ev
from dsup.core.state import Stage

RUN = "20261130T022700Z-train-0a1b2c_n7"


@pytest.fixture
def taken(new_node):
    """Give ``taken(failures, best_step, **options)``: a run that took those over."""

    def make(failures, best_step=None, **options):
        node = new_node(**options).running()
        fields = RUN, "agent_killed", 2, failures, best_step
        return node.tell(ev.TookOver("took_over", node.now_s, *fields))

    return make


def fail(node):
    """Let an attempt fail; return the plan that is made."""
    node.exited(0, -9).exited(1, -15).exited(2, -15).emptied().scanned()
    return node.state.plan


def test_a_count_that_is_used_up_ends_nothing_by_itself(taken):
    """The attempt runs on; its failure, or none, will tell."""
    node = taken(9, max_restarts=1)

    assert (node.stage, node.commands) == (Stage.RUNNING, ())


@pytest.mark.parametrize(("failures", "restarts"), [(1, True), (2, False)])
def test_failures_before_the_launch_count_against_max_restarts(
    taken, failures, restarts
):
    """--max-restarts 2 allows two in a row, of whichever launch."""
    plan = fail(taken(failures, max_restarts=2))

    assert (plan.restart_at_s is not None) == restarts


@pytest.mark.parametrize(("failures", "restarts"), [(2, True), (3, False)])
def test_failures_before_the_launch_count_where_dsup_chooses(taken, failures, restarts):
    """Three restarts in a row, those of the run before included."""
    plan = fail(taken(failures))

    assert (plan.restart_at_s is not None) == restarts


def test_a_healthy_attempt_is_forgiven_them(taken):
    """A long attempt with a new step begins the count anew."""
    node = taken(3).after(1800).progressed(7)

    assert fail(node).restart_at_s is not None
    assert node.state.failed_attempts == 1


def test_a_step_that_the_run_before_had_reached_is_no_progress(taken):
    """Whoever resumes does steps again, as after any restart."""
    assert not taken(1, best_step=500).progressed(499).state.progressed
    assert taken(1, best_step=500).progressed(501).state.progressed
