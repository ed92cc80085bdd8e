"""--stop-after: the run ends in time, whatever it is doing, and may be resumed."""

import pytest

LIMITS_S = (1, 8, 64)
"""The last one is reached by no rank that has not begun yet."""


def limited(new_run, parked, clause, signalled, limits_s=LIMITS_S):
    """Return a run whose limit was over once its ranks trained, and the limit."""
    limit_s, *more = limits_s
    run = new_run()
    options = f"--nproc 2 --max-restarts 2 --stop-after {limit_s}"
    parked.start(run, options, clause)
    assert run.ended() == 143, run.console()
    trained = len(run.events("ready")), len(run.events("got-TERM"))
    if more and trained != (2, signalled):
        return limited(new_run, parked, clause, signalled, more)
    return run, limit_s


@pytest.mark.parametrize("clause", ["*:", "*:plain"], ids=["runtime", "no runtime"])
def test_a_time_limit_stops_the_run(new_run, parked, clause):
    """--stop-after: 143, no restart, and its name in the console's last words."""
    signalled = 0 if clause == "*:" else 2
    run, limit_s = limited(new_run, parked, clause, signalled)

    assert run.elapsed_s() >= limit_s
    assert len(parked.journal(run, "spawn")) == 1
    assert len(run.events("got-TERM")) == signalled
    said = f"time limit of {limit_s} s (--stop-after)"
    assert any(said in line for line in run.said())
    assert any("stopped by its time limit" in line for line in run.said())
    if clause == "*:":
        assert parked.left_together(run, 2).kind == "limit"


def test_a_time_limit_counts_from_the_launch_of_the_run(run, parked):
    """A restart does not begin it anew, and in a pause it ends the run."""
    parked.start(
        run, "--nproc 1 --max-restarts 9 --stop-after 1.5 --backoff 60", "*:die=3"
    )

    assert run.ended() == 143, run.console()
    assert run.elapsed_s() >= 1.5


def test_a_run_that_is_faster_than_its_limit_succeeds(run, parked):
    """A limit that is not reached changes nothing."""
    parked.start(run, "--nproc 1 --stop-after 1h", "*:last=5")

    assert run.ended() == 0, run.console()
