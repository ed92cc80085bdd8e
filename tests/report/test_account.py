"""What a journal tells of a run that its time limit stopped."""

import pytest

from dsup.core import commands as cmd
from dsup.core import events as ev
from dsup.core import journal
from dsup.report.account import account, failed, outcome


@pytest.mark.parametrize(
    ("limit_s", "tick_s", "said"),
    [
        pytest.param(
            30.0, 40.0, "the run was stopped by its time limit, exit code 143", id="up"
        ),
        pytest.param(
            30.0, 39.0, "the run was given up with exit code 143", id="not up yet"
        ),
        pytest.param(
            None, 40.0, "the run was given up with exit code 143", id="no limit"
        ),
    ],
)
def test_a_time_limit_is_told_from_a_failure(job, limit_s, tick_s, said):
    """No signal is in such a journal: the limit counts from the launch."""
    items: list[ev.Event | cmd.Command] = [
        ev.Launched("launched", 10.0),
        cmd.Prepare("prepare", 0),
        ev.Tick("tick", tick_s),
        cmd.Exit("exit", 143, "dsup"),
    ]
    lines = [journal.header(job.spec._replace(stop_after_s=limit_s))]
    lines += [journal.encode(n, item) for n, item in enumerate(items, 1)]
    told = account(lines)

    assert outcome(told, alive=False) == said
    assert failed(told, ()) == ([] if "time limit" in said else [0])
