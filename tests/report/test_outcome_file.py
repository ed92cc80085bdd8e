"""outcome.json for a main rank that was killed: what dsup can say in its place."""

import json

import pytest

from dsup.core import machine
from dsup.core.state import Death, Stop
from dsup.report.outcome_file import of_killed

KILL, TERM = 9, 15


@pytest.fixture
def closed(job):
    """Give ``closed(status, **fields)``: an attempt whose rank 0 ended so."""

    def state(status, **fields):
        ended = (Death(1, 1, 5.0), Death(0, status, 5.0))
        return machine.initial(job.spec)._replace(ended=ended, **fields)

    return state


@pytest.mark.parametrize("status", [0, 1, 143])
def test_a_rank_that_was_not_killed_speaks_for_itself(closed, status):
    """Whoever ends with a code had its chance to write the file."""
    assert of_killed(closed(status), 7, "") is None


def test_a_rank_that_never_was_has_no_outcome(closed):
    """An attempt that could not start has no main rank."""
    assert of_killed(closed(0)._replace(ended=()), None, "") is None


def test_a_killed_rank_has_failed(closed):
    """Every field of the runtime's own file is there."""
    told = json.loads(of_killed(closed(-KILL), 17, "Rank 0 was killed.") or b"")

    assert told == {
        "v": 1,
        "status": "FAILED",
        "exit_code": 137,
        "resumable": True,
        "reason": "killed by SIGKILL",
        "error": "Rank 0 was killed.",
        "rank": 0,
        "step": 17,
        "written_by": "dsup",
    }


def test_a_rank_that_was_killed_in_a_stop_was_killed(closed):
    """The stop is the reason; what is not known is null."""
    state = closed(-TERM, stop=Stop(TERM, 0, 5.0, "time_limit"))
    told = json.loads(of_killed(state, None, "") or b"")

    assert (told["status"], told["exit_code"]) == ("KILLED", 143)
    assert told["reason"] == "killed by SIGTERM (time_limit)"
    assert (told["error"], told["step"]) == (None, None)


@pytest.mark.parametrize(
    ("known", "step", "resumable"),
    [(False, None, False), (False, 3, True), (True, None, True)],
    ids=["neither", "steps", "checkpoints"],
)
def test_it_may_be_resumed_where_a_restart_could(closed, known, step, resumable):
    """By the rule of the restarts: a checkpoint location is known, or steps are."""
    state = closed(-KILL, best_step=step)
    policy = state.spec.policy._replace(checkpoints_known=known)
    state = state._replace(spec=state.spec._replace(policy=policy))

    assert json.loads(of_killed(state, None, "") or b"")["resumable"] is resumable
