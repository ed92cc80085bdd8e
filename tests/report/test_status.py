"""The status line: how a run stands, in a dozen words."""

import pytest

from dsup.core.plan import Plan, Policy
from dsup.core.state import Hang, Spec, Stage, State
from dsup.report.status import StatusText, pause, text

SPEC = Spec(4, 2.0, 25.0, False, Policy(None, (10.0,), 1800.0, False, False))


def state(**fields):
    defaults = {"stage": Stage.RUNNING, "alive": frozenset(range(4))}
    return State(SPEC, **{**defaults, **fields})


@pytest.mark.parametrize(
    ("fields", "step", "rate", "said"),
    [
        pytest.param({}, None, None, "attempt 0, 4 of 4 ranks", id="no runtime"),
        pytest.param(
            {"attempt": 2, "checkpoint_step": 12000},
            12345,
            3.14159,
            "attempt 2, 4 of 4 ranks, step 12,345, 3.14 steps/s, "
            "checkpoint at step 12,000",
            id="all there is",
        ),
        pytest.param(
            {"alive": frozenset({1}), "stage": Stage.SETTLING},
            7,
            None,
            "attempt 0, 1 of 4 ranks, step 7, settling",
            id="after a death",
        ),
        pytest.param(
            {"alive": frozenset(), "stage": Stage.PREPARING},
            None,
            None,
            "attempt 0, no rank alive, preparing",
            id="before the start",
        ),
        pytest.param(
            {"stage": Stage.PARKING},
            7,
            None,
            "attempt 0, 4 of 4 ranks, step 7, stopping at the next step",
            id="parked",
        ),
        pytest.param(
            {"suspected": Hang((2,), "frozen", 5.0)},
            7,
            None,
            "attempt 0, 4 of 4 ranks, step 7, rank 2 frozen",
            id="frozen",
        ),
        pytest.param(
            {"suspected": Hang((0, 1, 2, 3), "stalled", 5.0), "slow": frozenset({3})},
            7,
            None,
            "attempt 0, 4 of 4 ranks, step 7, ranks 0-3 without a step, rank 3 slow",
            id="stalled",
        ),
        pytest.param(
            {"suspected": Hang((2,), "absent", 5.0), "stage": Stage.CAPTURING},
            7,
            None,
            "attempt 0, 4 of 4 ranks, step 7, capturing",
            id="being captured",
        ),
    ],
)
def test_how_a_run_stands(fields, step, rate, said):
    """Attempt, ranks alive, step, speed, checkpoint, and a stage that is not normal."""
    assert text(state(**fields), step, rate) == f"dsup: {said}"


def test_what_is_left_of_a_pause():
    """Between attempts the line counts down."""
    plan = Plan(restart_at_s=110.0, code=1, reason="killed")
    waiting = state(stage=Stage.DECIDING, alive=frozenset(), plan=plan)

    assert pause(waiting, 100.0) == "dsup: restart 1 in 10 s"
    assert pause(state(plan=plan), 100.0) == ""
    assert StatusText().news(waiting, None, 100.0) == "dsup: restart 1 in 10 s"


def test_news_come_once_a_second_and_only_if_there_are_any():
    """What has not changed is not sent again."""
    line = StatusText()
    assert line.news(state(), 1, 100.0) == "dsup: attempt 0, 4 of 4 ranks, step 1"
    assert line.news(state(), 2, 100.5) is None
    assert line.news(state(), 3, 101.0).endswith("step 3, 2 steps/s")
    assert line.news(state(), 5, 102.0).endswith("step 5, 2 steps/s")
    assert line.news(state(), 5, 103.0).endswith("step 5, 1.33 steps/s")


def test_slow_steps_have_a_rate_and_a_new_attempt_a_new_one():
    """One step in half a minute is a rate; steps of an earlier attempt are none."""
    line = StatusText()
    line.news(state(), 1, 100.0)
    assert line.news(state(), 2, 130.0).endswith("0.0333 steps/s")
    assert line.news(state(attempt=1), 50, 131.0).endswith("step 50")
