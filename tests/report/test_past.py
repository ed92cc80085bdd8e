"""The status document of a run that cannot be asked: what its journal tells."""

import json

import pytest

from dsup.report import account
from dsup.report.life import first_failure
from dsup.report.past import Past, document, failed_in_a_row
from dsup.report.snapshot import Name

HEALTHY_S = 1800.0
SPEC = {
    "world_size": 1,
    "settle_s": 2.0,
    "grace_s": 25.0,
    "keep_helpers": False,
    "policy": {
        "max_restarts": None,
        "backoff_s": [10.0],
        "healthy_after_s": HEALTHY_S,
        "restart_on_user": False,
        "checkpoints_known": False,
    },
}


def attempts(*lives):
    """Return a journal of attempts, each ``(seconds, whether it made progress)``."""
    items, at_s = [{"event": "launched", "at_s": 0.0}], 0.0
    for number, (lived_s, progressed) in enumerate(lives):
        at = {"attempt": number, "at_s": at_s + 1}
        end = {"attempt": number, "at_s": at_s + 1 + lived_s}
        items += [
            {"command": "prepare", "attempt": number},
            {"event": "rank_started", **at, "rank": 0, "pid": 100},
            *[{"event": "progressed", **end, "step": 7 + number}] * progressed,
            {"event": "rank_exited", **end, "late_s": 0.0, "rank": 0, "status": -9}
            | {"dying": []},
        ]
        at_s = end["at_s"]
    lines = [{"n": 0, "journal": 1, "spec": SPEC}]
    lines += [{"n": n, **item} for n, item in enumerate(items, 1)]
    return list(map(json.dumps, lines))


@pytest.mark.parametrize(
    ("lives", "used", "limit"),
    [
        pytest.param([(5, 0)], 0, 0, id="no step was told"),
        pytest.param([(5, 1)], 0, 3, id="steps were"),
        pytest.param([(5, 1), (5, 1), (5, 0)], 2, 3, id="two in a row"),
        pytest.param([(5, 1), (HEALTHY_S, 1), (5, 0)], 1, 3, id="forgiven"),
        pytest.param([(5, 1), (HEALTHY_S, 0), (5, 0)], 2, 3, id="without progress"),
    ],
)
def test_restarts_are_counted_as_the_agent_counts(lives, used, limit):
    """In a row; a long and fruitful attempt forgives, and without a step is none."""
    lines = attempts(*lives)
    name = Name("r", "r", "/r", "n", "t")
    past = Past(name, account.account(lines), lines, False, 0.0, 0.0, 0.0)

    assert document(past)["restarts"] == {"used": used, "limit": limit}


def told(*items):
    """Return the document of a run of which nothing can be asked, with more lines."""
    lines = attempts((5, 1))
    known = enumerate(items, len(lines))
    lines += [json.dumps({"n": n, **item}) for n, item in known]
    name = Name("r", "r", "/r", "n", "t")
    return document(Past(name, account.account(lines), lines, False, 0.0, 0.0, 0.0))


EXIT = {"command": "exit", "code": 130, "origin": "rank"}


def test_a_lost_run_names_which_of_its_processes_has_gone():
    """The agent tells of its guard; of the agent nobody does."""
    assert told()["lost"] == "agent"
    assert told({"event": "guard_lost", "at_s": 9.0}, EXIT)["lost"] == "guard"
    assert told(EXIT)["lost"] is None


def test_a_person_who_stopped_a_run_is_no_preemption():
    """Exit code 130 is that of Ctrl-C and of dsup stop, which is named."""
    signal = {"event": "signalled", "at_s": 9.0, "sender_pid": 7}
    asked, term = {**signal, "signum": 2, "sender_uid": 5}, {**signal, "signum": 15}

    stop = told(asked, EXIT)["stop"]
    assert (stop["kind"], stop["reason"]) == ("user", "dsup stop (uid 5, pid 7)")
    assert told(term, EXIT | {"code": 143})["stop"]["kind"] == "preempt"


@pytest.mark.parametrize(
    ("stop", "rank", "status", "note"),
    [
        pytest.param("preempt", -1, 143, "ended by dsup", id="as it was told to"),
        pytest.param("preempt", -1, 3, "exit code 3", id="of its own"),
        pytest.param("user", -1, 143, "ended by dsup", id="an operator's stop"),
        pytest.param("user", 1, 143, "exit code 143", id="who has enough ends with 0"),
        pytest.param("", -1, 143, "exit code 143", id="nobody had told it to"),
    ],
)
def test_a_rank_that_left_at_the_stop_is_not_worth_a_look(stop, rank, status, note):
    """Nor has it failed: whoever kills the agent then finds nobody to blame."""
    *before, end = (line.replace("-9", str(status)) for line in attempts((5, 1)))
    publish = PUBLISH | {"stop": stop, "rank": rank}
    lines = [*before, *[json.dumps(publish)] * bool(stop), end]
    told = account.account(lines)
    found = document(Past(NAME, told, lines, False, 0.0, 0.0, 0.0))

    assert found["ranks"][0]["note"] == note
    failed = first_failure(told.lives[0])
    assert (failed is None) == (note == "ended by dsup")


NAME = Name("r", "r", "/r", "n", "t")
PUBLISH = {"n": 90, "command": "publish_stop", "attempt": 0, "check": 5} | {
    "rank": -1,
    "reason": "",
    "until_s": 9.0,
}
TAKEN = {
    "event": "took_over",
    "at_s": 1.5,
    "run": "r0",
    "cause": "agent_killed",
    "ended_in": 1,
    "failed_attempts": 2,
    "best_step": 90,
}


@pytest.mark.parametrize(
    ("lives", "more", "failed", "best"),
    [
        pytest.param([(5, 0)], (), 1, None, id="the last one counts"),
        pytest.param([(5, 1), (5, 1)], (), 2, 8, id="two in a row"),
        pytest.param([(5, 1), (HEALTHY_S, 1)], (), 1, 8, id="forgiven"),
        pytest.param([(5, 1)], (TAKEN,), 3, 90, id="and those taken over"),
        pytest.param([(5, 0), (HEALTHY_S, 1)], (TAKEN,), 1, 90, id="forgiven, too"),
    ],
)
def test_failures_of_a_run_that_was_cut_off(lives, more, failed, best):
    """Its last attempt failed, too, and so did those of the runs that it took over."""
    header, launched, *rest = attempts(*lives)
    lines = [header, launched]
    lines += [json.dumps({"n": 90 + n, **item}) for n, item in enumerate(more)]
    lines += rest

    assert failed_in_a_row(account.account(lines), lines) == (failed, best)
