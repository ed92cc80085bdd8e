"""Whole jobs that somebody stopped: no rank is guilty then."""

import pytest

LIMIT = "slurmstepd: error: *** STEP 31.0 CANCELLED AT 2026-03-02T14:00:00 DUE TO …"


def test_a_time_limit(log):
    """What ranks say after the scheduler ended the step comes of it."""
    story = log(world_size=2).stopped("time_limit", LIMIT).raised(1, "OSError", "gone")

    assert story.answer == ("stopped", "time_limit", ())
    assert story.verdict.certainty == "proven"
    assert not story.verdict.would_change


def test_a_stop_after_a_failure_is_no_cause(log):
    """The job is cancelled because a rank had failed before."""
    story = log().raised(1, "ValueError", "bad record").stopped("time_limit", LIMIT)

    assert story.answer == ("raised", "python_exception", (1,))


def test_a_run_that_had_hung_before_its_time_limit(log):
    """Nothing moved for an hour: the limit only ended what had stopped working."""
    story = log().moved(0, 40, at=1000.0).stopped("time_limit", LIMIT, at=4600.0)

    assert story.answer == ("hung_until_stopped", "hang", ())
    assert story.began_s == 1000.0
    assert "60 min" in story.verdict.summary


@pytest.mark.parametrize("idle_s", [0.0, 599.0])
def test_a_run_that_worked_until_its_time_limit(log, idle_s):
    """Ten minutes without a line are no hang."""
    story = log().moved(0, 40, at=1000.0)
    story.stopped("time_limit", LIMIT, at=1000.0 + idle_s)

    assert story.answer == ("stopped", "time_limit", ())


def test_a_closed_terminal(log):
    """SIGHUP comes although nohup was used: its session was closed."""
    story = log().stopped("user_interrupt", "Received 1 death signal", signum=1)

    assert story.answer == ("stopped", "user_interrupt", ())
    assert "SIGHUP" in story.verdict.summary
    assert story.verdict.status == -1


def test_time_outs_before_a_stop(log):
    """A job that is cancelled while its ranks wait had hung; the stop is the end."""
    story = log(world_size=4).timed_out(0, 2, 3).stopped("time_limit", LIMIT)

    assert story.answer == ("silent", "hang", (1,))


def test_a_sigterm_to_an_agent_that_had_told_of_a_failure(log):
    """An outer launcher ends the agents of the other nodes after one rank failed."""
    story = log().stopped("preempted", "Received 15 death signal", signum=15)
    story.ended(4, 1, "agent")

    assert story.answer == ("summary", "python_exception", (4,))


def test_a_ctrl_c_that_only_the_workers_tell_of(log):
    """KeyboardInterrupt is nobody's failure."""
    story = log(world_size=2).raised(0, "KeyboardInterrupt").raised(1, "ValueError")

    assert story.answer == ("raised", "python_exception", (1,))
    assert log().raised(0, "KeyboardInterrupt").answer == (
        "interrupted",
        "user_interrupt",
        (),
    )
