"""What a command is told: few events, each once, with what is known by then."""

import json
from pathlib import Path

import pytest

from dsup.core import events as ev
from dsup.core import journal, machine
from dsup.core.state import Stop
from dsup.core.verdict import Advice, Verdict
from dsup.report.notices import complete, ended, notices
from dsup.report.snapshot import Name

RECORDINGS = Path(__file__).parents[1] / "recordings"

VERDICT = Verdict(
    attempt=0,
    cause="killed",
    first_ranks=(1,),
    certainty="proven",
    at_s=1.0,
    summary="Rank 1 was killed by\x1b[31m SIGKILL.",
    rule="r",
    advice=Advice("find", "find the sender"),
)


def told(name):
    """Return what is told of a recorded run, in order."""
    lines = (RECORDINGS / f"{name}.jsonl").read_text().splitlines()
    state, found = machine.initial(journal.decode_header(lines[0])), list[dict]()
    for entry in journal.entries(lines[1:]):
        if entry.event is not None:
            before = state
            state, commands = machine.decide(before, entry.event)
            found += notices(before, entry.event, state, VERDICT)
            for command in commands:
                if command.kind == "exit":
                    found.append(ended(state, command.code, command.origin))
    return found


@pytest.mark.parametrize(
    ("name", "events"),
    [
        ("success", "run_started attempt_started run_ended"),
        (
            "killed-restarted-succeeded",
            (
                "run_started attempt_started attempt_failed restarting "
                "attempt_started run_ended"
            ),
        ),
        (
            "hang-confirmed-restarted",
            (
                "run_started attempt_started hang_suspected attempt_failed restarting "
                "attempt_started run_ended"
            ),
        ),
        ("stopped-by-sigterm", "run_started attempt_started stopping run_ended"),
        ("interrupted-twice", "run_started attempt_started stopping run_ended"),
        ("time-limit-parked", "run_started attempt_started stopping run_ended"),
        ("program-not-found", "run_started attempt_started attempt_failed run_ended"),
        (
            "stopped-in-the-pause",
            "run_started attempt_started attempt_failed restarting stopping run_ended",
        ),
    ],
)
def test_a_run_is_told_in_few_words(name, events):
    """Each thing once, in the order in which it happened, the end last."""
    assert [one["event"] for one in told(name)] == events.split()


def test_a_failure_comes_with_its_verdict_and_its_sequel():
    """Whoever is woken by it needs no second look."""
    failed, again = told("killed-restarted-succeeded")[2:4]

    assert failed["verdict"]["cause"] == "killed"
    assert failed["verdict"]["first_ranks"] == [1]
    assert failed["verdict"]["summary"] == r"Rank 1 was killed by\x1b[31m SIGKILL."
    assert again["attempt"] == 1
    assert again["in_s"] == pytest.approx(0.96, abs=0.01)


@pytest.mark.parametrize(
    ("name", "outcome", "code"),
    [
        ("success", "succeeded", 0),
        ("gave-up-after-max-restarts", "failed", 137),
        ("stopped-by-sigterm", "stopped", 143),
    ],
)
def test_the_last_event_has_the_outcome(name, outcome, code):
    """It is the one that a dead-man's switch needs."""
    last = told(name)[-1]
    assert (last["outcome"], last["code"]) == (outcome, code)


def test_a_stop_names_who_asked_for_it():
    """Dsup stop is no SIGINT of nobody's."""
    state = machine.initial(journal.decode_header(json.dumps(HEADER)))
    asked = ev.Signalled("signalled", 5.0, 2, 7, 1000)
    stopped = state._replace(stop=Stop(2, 1, 5.0, "user_interrupt", (1000, 7)))

    assert list(notices(state, asked, stopped, None)) == [
        {"event": "stopping", "why": "dsup stop (uid 1000, pid 7)"}
    ]


def test_an_event_is_whole():
    """Every event has what names the run, and its own fields go before those."""
    name = Name("run", "id", "/runs/run", "node", "t\x00rain")
    whole = complete({"event": "restarting", "attempt": 2}, name, 1, 100.5)

    assert json.loads(json.dumps(whole)) == {
        "schema": "dsup.event/1",
        "event": "restarting",
        "run": "run",
        "run_id": "id",
        "run_dir": "/runs/run",
        "node": "node",
        "program": "t\\x00rain",
        "at": "1970-01-01T00:01:40.500000Z",
        "attempt": 2,
    }


def test_a_doubt_that_comes_to_nothing_is_told_once():
    """A suspicion is told when it arises; a machine that ignores it tells nothing."""
    state = machine.initial(journal.decode_header(json.dumps(HEADER)))
    event = ev.HangSuspected("hang_suspected", 1.0, 0, (0,), "silent", 0.0, None)
    assert list(notices(state, event, state, None)) == []


HEADER = json.loads((RECORDINGS / "success.jsonl").read_text().splitlines()[0])
