"""How grave a line of dsup's own is: what a person must see at a glance."""

import pytest

from dsup.core import machine
from dsup.core.plan import Plan
from dsup.core.state import Death, Hang, Stage
from dsup.report import console


@pytest.mark.parametrize(
    ("make", "changes", "tone"),
    [
        pytest.param(lambda e: e.exited(5.0, 1, -9), {}, "failure", id="a death"),
        pytest.param(
            lambda e: e.cannot("port_in_use", 1, "cannot"), {}, "failure", id="cannot"
        ),
        pytest.param(
            lambda e: e.agreed(5.0, None, 1, "given up"),
            {"plan": Plan(None, 1, "given up")},
            "failure",
            id="given up",
        ),
        pytest.param(
            lambda e: e.agreed(5.0, 15.0, 1, "killed"),
            {"plan": Plan(15.0, 1, "killed")},
            "warning",
            id="a restart",
        ),
        pytest.param(lambda e: e.signalled(5.0, 15), {}, "warning", id="a stop"),
        pytest.param(lambda e: e.tick(5.0), {}, "warning", id="time is up"),
        pytest.param(
            lambda e: e.tick(5.0), {"stage": Stage.OVER}, "failure", id="unkillable"
        ),
        pytest.param(lambda e: e.prepared(), {}, "plain", id="the start"),
        pytest.param(lambda e: e.suspected((1,)), {}, "warning", id="a suspicion"),
        pytest.param(lambda e: e.captured(), {}, "warning", id="stacks of a suspicion"),
        pytest.param(
            lambda e: e.confirmed((1,)), {}, "warning", id="a hang that is reported"
        ),
        pytest.param(
            lambda e: e.confirmed((1,)),
            {"hang": Hang((1,), "absent", 67.0)},
            "failure",
            id="a hang that ends the attempt",
        ),
        pytest.param(
            lambda e: e.straggles(1, 1.8, ""), {}, "warning", id="a straggler"
        ),
        pytest.param(lambda e: e.cleared(1), {}, "plain", id="no hang any more"),
        pytest.param(
            lambda e: e.tick(6.0),
            {"stage": Stage.RUNNING, "ended": (Death(1, 0, 5.0),)},
            "warning",
            id="one early exit of four",
        ),
        pytest.param(
            lambda e: e.tick(6.0),
            {
                "stage": Stage.RUNNING,
                "ended": tuple(Death(r, 0, 5.0) for r in (1, 2, 3)),
            },
            "plain",
            id="one of four is late",
        ),
    ],
)
def test_deaths_and_ends_are_failures_restarts_and_stops_are_warnings(
    events, job, make, changes, tone
):
    """Red for what went wrong, yellow for what is done about it, else nothing."""
    after = machine.initial(job.spec)._replace(**changes)

    assert console.tone(make(events), after) == tone
