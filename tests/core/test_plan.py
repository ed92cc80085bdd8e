"""The restart policy: whether to go on, when, and with which code to give up."""

import pytest

from dsup.core.plan import (
    PLANS,
    Failure,
    Plan,
    Policy,
    pause_s,
    plan_for,
    restarts_in_force,
)

FAILURE = Failure(
    cause="killed",
    rank=1,
    status=-9,
    reason="",
    at_s=100.0,
    failed_attempts=1,
    progressed=False,
    signature=("killed", 1, -9, ""),
    repeated=False,
    resumable=True,
)
POLICY = Policy(
    max_restarts=None,
    backoff_s=(10.0, 30.0, 90.0),
    healthy_after_s=1800.0,
    restart_on_user=False,
    checkpoints_known=True,
)


def failed(**changes):
    """Return the first failure of a run, rank 1 killed at 100 s, changed as told."""
    return FAILURE._replace(**changes)


def asked(**changes):
    """Return the policy without any option, changed as told."""
    return POLICY._replace(**changes)


RAISED = {"cause": "python_exception", "status": 3}

HUNG = {"cause": "hang", "status": 1, "hung": True}

RESTARTED = [
    pytest.param({}, {}, 110, id="infrastructure, resumable"),
    pytest.param({"failed_attempts": 3}, {}, 190, id="infrastructure, third time"),
    pytest.param({"repeated": True}, {}, 110, id="infrastructure, repeated: up to 3"),
    pytest.param({"cause": "unknown", "status": 1}, {}, 110, id="unknown"),
    pytest.param(
        RAISED | {"progressed": True}, {}, 110, id="user cause after progress, new"
    ),
    pytest.param(RAISED, {"restart_on_user": True}, 110, id="user cause, opted in"),
    pytest.param(
        RAISED | {"repeated": True},
        {"restart_on_user": True},
        110,
        id="user cause, opted in, repeated",
    ),
    pytest.param(
        {"resumable": False}, {"max_restarts": 1}, 110, id="N given, not resumable"
    ),
    pytest.param(RAISED, {"max_restarts": 1}, 110, id="N given, user cause"),
    pytest.param(
        RAISED | {"repeated": True, "failed_attempts": 2},
        {"max_restarts": 2},
        130,
        id="N given, user cause repeated",
    ),
    pytest.param(
        {"failed_attempts": 9}, {"max_restarts": 9}, 190, id="N given, the last one"
    ),
    pytest.param(HUNG, {}, 110, id="a hang"),
    pytest.param(
        HUNG | {"repeated": True, "progressed": True, "failed_attempts": 2},
        {},
        130,
        id="a hang at the same place, but new steps",
    ),
    pytest.param(
        HUNG | {"repeated": True, "failed_attempts": 2},
        {"max_restarts": 2},
        130,
        id="N given, the same hang again",
    ),
]

GIVEN_UP = [
    pytest.param({"cause": "unkillable"}, {"max_restarts": 9}, 193, id="unkillable"),
    pytest.param(
        {"cause": "spawn_error", "status": 127},
        {"max_restarts": 9},
        127,
        id="program not found, whatever N",
    ),
    pytest.param(
        {"cause": "spawn_error", "status": 126}, {}, 126, id="program not executable"
    ),
    pytest.param({}, {"max_restarts": 0}, 137, id="--max-restarts 0"),
    pytest.param(RAISED, {"max_restarts": 0}, 3, id="--max-restarts 0, own code"),
    pytest.param({"failed_attempts": 2}, {"max_restarts": 1}, 137, id="N used up"),
    pytest.param(
        {"failed_attempts": 2, "repeated": True},
        {"max_restarts": 1},
        137,
        id="N used up, repeated: still worth another try",
    ),
    pytest.param({"resumable": False}, {}, 137, id="nothing to resume from"),
    pytest.param(RAISED, {}, 3, id="user cause without progress"),
    pytest.param(
        RAISED | {"progressed": True, "repeated": True},
        {},
        3,
        id="user cause repeated, though it progressed",
    ),
    pytest.param(
        RAISED | {"failed_attempts": 4, "progressed": True},
        {},
        3,
        id="user cause, fourth in a row",
    ),
    pytest.param(
        RAISED | {"failed_attempts": 4, "repeated": True},
        {"restart_on_user": True},
        3,
        id="user cause repeats itself: own code",
    ),
    pytest.param({"failed_attempts": 4}, {}, 137, id="infrastructure, fourth in a row"),
    pytest.param(
        {"failed_attempts": 4, "repeated": True}, {}, 1, id="repeats itself: permanent"
    ),
    pytest.param(
        {"failed_attempts": 4, "repeated": True, "progressed": True},
        {},
        137,
        id="same failure but new steps",
    ),
    pytest.param(
        {"cause": "port_in_use", "rank": None, "status": 1, "failed_attempts": 4},
        {},
        195,
        id="a port that stays held",
    ),
    pytest.param(
        HUNG | {"repeated": True, "failed_attempts": 2},
        {},
        1,
        id="the same hang again: permanent",
    ),
    pytest.param(
        HUNG | {"last": True}, {"max_restarts": 9}, 194, id="a hang, --on-hang stop"
    ),
    pytest.param(
        HUNG | {"last": True, "cause": "nccl_network"}, {}, 195, id="the network hung"
    ),
    pytest.param(HUNG, {"max_restarts": 0}, 194, id="a hang, --max-restarts 0"),
]


@pytest.mark.parametrize(("failure", "policy", "at_s"), RESTARTED)
def test_a_restart_comes_after_the_pause(failure, policy, at_s):
    """What is worth another try begins the pause after the first death."""
    plan = plan_for(failed(**failure), asked(**policy))

    assert (plan.restart_at_s, plan.code) == (at_s, 0)


@pytest.mark.parametrize(("failure", "policy", "code"), GIVEN_UP)
def test_a_run_is_given_up_with_its_code(failure, policy, code):
    """What is not worth another try ends the run with the code of its cause."""
    plan = plan_for(failed(**failure), asked(**policy))

    assert (plan.restart_at_s, plan.code) == (None, code)


def decide(failure, policy, _expected):
    """Return the plan of a case."""
    return plan_for(failed(**failure), asked(**policy))


def test_every_row_of_the_policy_decides_a_case():
    """No row of the table is shadowed by those above it, and none is untested."""
    cases = [case.values for case in [*RESTARTED, *GIVEN_UP]]
    decided = {decide(*case).reason for case in cases}

    assert decided == {row.reason for row in PLANS}


def test_the_plan_gives_the_reason_of_its_row():
    """A plan says in words why."""
    assert plan_for(failed(), asked(max_restarts=0)) == Plan(
        None, 137, "--max-restarts 0"
    )


@pytest.mark.parametrize(
    ("failed_attempts", "expected_s"),
    [(1, 10.0), (2, 30.0), (3, 90.0), (4, 90.0), (100, 90.0)],
)
def test_pauses_follow_the_schedule_and_the_last_repeats(failed_attempts, expected_s):
    """Each failure in a row waits for the next pause of --backoff."""
    assert pause_s(failed_attempts, (10.0, 30.0, 90.0)) == expected_s


def test_a_single_pause_is_always_the_same():
    """--backoff with one value never grows."""
    assert [pause_s(n, (0.0,)) for n in (1, 2, 3)] == [0.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("policy", "restarts"),
    [
        pytest.param({"max_restarts": 7}, 7, id="as given"),
        pytest.param({"max_restarts": 0}, 0, id="none, as given"),
        pytest.param({}, 3, id="chosen, checkpoints known"),
        pytest.param({"checkpoints_known": False}, 0, id="chosen, nothing known"),
    ],
)
def test_the_number_in_force(policy, restarts):
    """The ranks are told the number of restarts that is in force."""
    assert restarts_in_force(asked(**policy)) == restarts
