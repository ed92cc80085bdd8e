"""What an attempt amounts to: its first rank, its progress, its exit code."""

import pytest

from dsup.core import machine, outcome
from dsup.core.state import Death, Stage

KILL, SEGV, TERM = 9, 11, 15


def end(node, deaths):
    """Let ranks end in order, then the clean-up, then the search."""
    for rank, status, dying in deaths:
        node.exited(rank, status, dying)
    return node.emptied().scanned()


@pytest.mark.parametrize(
    ("deaths", "first"),
    [
        pytest.param(
            [(1, 3, ()), (0, 1, ()), (2, 1, ())],
            ("python_exception", 1, 3, ""),
            id="the first to fail",
        ),
        pytest.param(
            [(1, 1, (2,)), (0, 1, ()), (2, -KILL, ())],
            ("killed", 2, -KILL, ""),
            id="a rank that was dying before, and was killed",
        ),
        pytest.param(
            [(1, 1, (2,)), (0, 1, ()), (2, 1, ())],
            ("python_exception", 1, 1, ""),
            id="a rank that was dying before, but of its own accord",
        ),
        pytest.param(
            [(1, 1, ()), (0, 1, ()), (2, -SEGV, ())],
            ("killed", 2, -SEGV, ""),
            id="a rank that died decisively later, before any signal of dsup",
        ),
        pytest.param(
            [(1, -KILL, (2,)), (0, -TERM, ()), (2, -SEGV, ())],
            ("killed", 1, -KILL, ""),
            id="the first end was decisive itself",
        ),
        pytest.param(
            [(0, 0, ()), (1, 1, ()), (2, 1, ())],
            ("python_exception", 1, 1, ""),
            id="an early exit 0 counts as no failure",
        ),
    ],
)
def test_the_first_rank(node, deaths, first):
    """Exit order decides, but for a rank the kernel was already taking down."""
    end(node.running(), deaths)

    assert node.state.signature == first


def test_the_pause_counts_from_the_first_death_whoever_was_first(node):
    """A rank that takes long to be taken down does not lengthen the pause."""
    node.running().exited(1, 1, (2,))
    first_death_s = node.now_s
    node.after(1).exited(0, 1).after(0.5).exited(2, -KILL).emptied().scanned(0)

    assert node.proposed.restart_at_s == first_death_s + 10


def test_the_pause_counts_from_what_was_in_the_way(node):
    """Where no rank failed the pause begins with what could not be done."""
    node.running().after(7200).cannot("store_lost")
    lost_s = node.now_s
    node.exited(0, -KILL).exited(1, -KILL).exited(2, -KILL).after(1)
    node.group_empty().scanned(0)

    assert node.proposed.restart_at_s == lost_s + 10


def fail_after(node, lived_s, *, step=None, checkpoint=None):
    """Let an attempt live, perhaps progress, and be killed; return its node."""
    node.running().after(lived_s)
    if step is not None:
        node.progressed(step)
    node.exited(1, -KILL).exited(0, -TERM).exited(2, -TERM).emptied()
    return node.scanned(checkpoint).echoed()


@pytest.mark.parametrize(
    ("lived_s", "step", "checkpoint", "failed_attempts"),
    [
        pytest.param(1800, 9, None, 1, id="lived long and took a new step"),
        pytest.param(1800, None, 9, 1, id="lived long and left a new checkpoint"),
        pytest.param(1800, None, None, 2, id="lived long without progress"),
        pytest.param(1800, 5, 5, 2, id="lived long but got no further than before"),
        pytest.param(1799, 9, 9, 2, id="progressed but died too soon"),
    ],
)
def test_a_healthy_attempt_clears_the_count(
    node, lived_s, step, checkpoint, failed_attempts
):
    """Failures are forgiven after --healthy-after seconds with progress."""
    fail_after(node, 1, step=5, checkpoint=5)
    node.ticked()

    fail_after(node, lived_s, step=step, checkpoint=checkpoint)

    assert node.state.failed_attempts == failed_attempts
    assert node.proposed.restart_at_s == node.state.failed.at_s + (
        10 if failed_attempts == 1 else 30
    )


def test_progress_is_what_no_earlier_attempt_reached(node):
    """Steps that are only repeated after a restart are no progress."""
    fail_after(node, 1, step=5)
    node.ticked().running().progressed(4)
    assert (node.state.best_step, node.state.progressed) == (5, False)

    node.progressed(6)

    assert (node.state.best_step, node.state.progressed) == (6, True)


def test_a_checkpoint_found_before_the_ranks_ran_is_no_progress(node):
    """What was there when the attempt began was not left by it."""
    node.launched().scanned(5)

    assert (node.state.checkpoint_step, node.state.progressed) == (5, False)


def test_a_reporting_runtime_makes_a_run_resumable(new_node):
    """Without a checkpoint location, steps that ranks report show they can resume."""
    silent = fail_after(new_node(checkpoints_known=False), 1)
    reporting = fail_after(new_node(checkpoints_known=False), 1, step=0)

    assert (silent.stage, silent.exit_code) == (Stage.OVER, 137)
    assert reporting.proposed.restart_at_s is not None


def test_a_repeated_infrastructure_failure_ends_with_1(node):
    """Killed at the same rank without a new step again and again is permanent: 1."""
    for _ in range(3):
        fail_after(node, 1)
        node.ticked()

    fail_after(node, 1)

    assert (node.attempt, node.stage, node.exit_code) == (3, Stage.OVER, 1)


@pytest.mark.parametrize(
    ("status", "code", "origin"),
    [
        pytest.param(3, 3, "rank", id="the rank's own code"),
        pytest.param(70, 1, "dsup", id="a code that means something else here"),
        pytest.param(200, 1, "dsup", id="a code that would mean another try"),
        pytest.param(-SEGV, 139, "dsup", id="a signal"),
    ],
)
def test_whose_the_exit_code_is(new_node, status, code, origin):
    """The origin says whether the code is the first rank's own."""
    node = new_node(world_size=1, max_restarts=0)

    end(node.running(), [(0, status, ())]).echoed()

    assert (node.commands[-1].code, node.commands[-1].origin) == (code, origin)


def test_a_state_without_any_failure_is_unknown(make_spec):
    """What no event explains is read as unknown, and never as a success."""
    state = machine.initial(make_spec())

    assert outcome.first_rank(state) is None
    assert outcome.failure_of(state).cause == "unknown"
    assert outcome.exit_of(state) == (70, "dsup")


def test_a_dying_rank_that_has_not_ended_is_not_named(make_spec):
    """A rank is first only if its own end was seen."""
    failed = Death(1, 1, 5.0)
    state = machine.initial(make_spec())._replace(
        failed=failed, suspects=(2,), ended=(failed,)
    )

    assert outcome.first_rank(state) == failed
