"""A rank wants a stop: what kind decides for all, and noise decides nothing."""

import pytest

PATIENT = "--settle 600"
"""For who leaves a moment after the first that fails."""


@pytest.mark.parametrize("how", ["told", "silent"])
@pytest.mark.parametrize(
    ("kind", "code"), [("user", 0), ("limit", 143), ("preempt", 143)]
)
def test_a_rank_may_want_the_stop(run, parked, kind, code, how):
    """A wish of a rank is a stop for all; without its note the page is looked at."""
    wish = f"wish={kind}@5" + (",silent" if how == "silent" else "")
    parked.start(run, "--nproc 2 --max-restarts 2", "0:", f"1:{wish}")

    assert run.ended() == code, run.console()
    told = parked.left_together(run, 2)
    expected = (kind, 1, "enough" if how == "told" else "")
    assert (told.kind, told.of, told.reason) == expected
    assert run.events("got-TERM") == []
    assert len(parked.journal(run, "spawn")) == 1


@pytest.mark.parametrize("kind", ["error", "peer"])
def test_a_wish_of_an_error_fails_the_attempt_and_no_more(run, parked, kind):
    """The ranks leave together and fail; the ordinary way decides on a restart."""
    clauses = (f"1@0:wish={kind}@5", "0@0:", "*:last=9")
    parked.start(run, f"--nproc 2 --max-restarts 1 {PATIENT}", *clauses)

    assert run.ended() == 0, run.console()
    told = parked.left_together(run, 2)
    assert (told.kind, told.of) == (kind, 1)
    assert len(run.events("done")) == 2
    assert (run.run_dir() / "attempt_0/verdict.json").exists()
    assert run.events("got-TERM") == []


def test_the_greatest_wish_wins(run, parked):
    """An error and a wish to end well at the same check: the error counts."""
    options = f"--nproc 2 --max-restarts 0 {PATIENT}"
    # The first check is frozen for none before all ranks have come to it, so that the
    # wish that comes later comes in time.
    parked.start(run, options, "0:wish=user@1", "1:wish=error@1,step=0.3")

    assert run.ended() == 1, run.console()
    told = parked.left_together(run, 2)
    assert (told.kind, told.of) == ("error", 1)


@pytest.mark.parametrize(
    "garbage", ["nothing", "noise", "kind", "none", "list", "version", "long"]
)
def test_a_note_that_is_none_stops_nobody(run, parked, garbage):
    """What is no wish of a kind that is known changes nothing."""
    parked.start(run, "--nproc 2", f"1:say={garbage}@3,last=20", "*:last=20")

    assert run.ended() == 0, run.console()
    assert len(run.events("done")) == 2
    assert parked.journal(run, "stop_wanted") == []


@pytest.mark.parametrize(
    ("kind", "code"), [("user", 0), ("limit", 143), ("preempt", 143), ("error", 1)]
)
def test_the_runtimes_wish_is_heard(run, parked, kind, code):
    """request_stop on one rank is a stop of that kind on all of them."""
    options = f"--nproc 2 --max-restarts 0 {PATIENT}"
    parked.start(run, options, f"{kind}:1@40", worker="should_stop.py")

    assert run.ended() == code, run.console()
    told = parked.left_together(run, 2)
    assert (told.kind, told.of, told.reason) == (kind, 1, "enough")
