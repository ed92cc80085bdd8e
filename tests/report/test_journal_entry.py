"""A verdict in systemd's journal: one line, and what to find it by."""

import json

import pytest

from dsup.core.verdict import Verdict
from dsup.report.journal_entry import AMENDED_ID, VERDICT_ID, amendment, entry

KILLED = Verdict(
    attempt=2,
    cause="host_oom",
    first_ranks=(3, 5),
    certainty="proven",
    at_s=100.0,
    summary="Ranks 3 and 5 were killed by the kernel: no memory.",
    rule="x",
    status=-9,
)


def test_a_verdict_s_fields_name_cause_ranks_and_attempt():
    """Each first rank is a value of its own; the number is the verdicts' for ever."""
    line, fields, _ = entry(KILLED, "no restart, exit 137: given up")

    assert "killed by the kernel" in line
    assert len(line) <= 200
    assert json.loads(fields) == {
        "MESSAGE_ID": VERDICT_ID,
        "DSUP_ATTEMPT": 2,
        "DSUP_CAUSE": "host_oom",
        "DSUP_CERTAINTY": "proven",
        "DSUP_RANK": [3, 5],
    }


@pytest.mark.parametrize(
    ("following", "tone"),
    [
        pytest.param("restart 3 of 3 at 14:19:58 UTC", "warning", id="a restart"),
        pytest.param("no restart, exit 137: given up", "failure", id="given up"),
    ],
)
def test_a_restart_is_less_grave(following, tone):
    """Priority 4 where the run goes on, 3 where it ends."""
    assert entry(KILLED, following)[2] == tone


def test_an_amendment_is_told_apart():
    """It has a number of its own, and says what was thought before."""
    line, fields, tone = amendment(KILLED._replace(cause="killed"), KILLED)

    assert (json.loads(fields)["MESSAGE_ID"], tone) == (AMENDED_ID, "warning")
    assert "before: killed" in line
