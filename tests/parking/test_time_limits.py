"""--stop-after: the run ends in time, whatever it is doing, and may be resumed."""

import pytest


@pytest.mark.parametrize("clause", ["*:", "*:plain"], ids=["runtime", "no runtime"])
def test_a_time_limit_stops_the_run(run, parked, clause):
    """--stop-after: 143, no restart, and its name in the console's last words."""
    parked.start(run, "--nproc 2 --max-restarts 2 --stop-after 1", clause)

    assert run.ended() == 143, run.console()
    assert run.elapsed_s() >= 1.0
    assert len(parked.journal(run, "spawn")) == 1
    signalled = 0 if clause == "*:" else 2
    assert len(run.events("got-TERM")) == signalled
    assert any("time limit of 1 s (--stop-after)" in line for line in run.said())
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
