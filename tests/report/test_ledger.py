"""Where the time went, as people and programs read it."""

import json
from pathlib import Path

import pytest

from dsup.core import journal
from dsup.core.ledger import LOST, Balance, balance
from dsup.report.ledger import document, line, of_journal
from dsup.timekeeper import Timekeeper

RECORDINGS = Path(__file__).parents[1] / "recordings"


def spent(wall_s, by_steps=True, attempts=2, **lost):
    """Return a balance of this length and these losses."""
    lost_s = dict.fromkeys(LOST, 0.0) | {name: float(s) for name, s in lost.items()}
    useful_s = wall_s - sum(lost_s.values())
    return Balance(float(wall_s), useful_s, lost_s, by_steps, attempts)


LONG = spent(
    50_580, recomputed=1860, start_up=1080, pause=540, detection=240, teardown=20
)


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (
            LONG,
            (
                "14 h 3 min, 93 % new steps; lost 62 min: recomputed 31, start-up 18, "
                "pauses 9, detection 4"
            ),
        ),
        (
            spent(600, start_up=60, pause=10),
            "10 min, 88 % new steps; lost 70 s: start-up 60, pauses 10",
        ),
        (
            spent(86_400 * 3, start_up=7200, recomputed=36_000),
            "72 h, 83 % new steps; lost 12 h: recomputed 10, start-up 2",
        ),
        (
            spent(300, by_steps=False, pause=30),
            "5 min, 90 % ranks alive (they tell no steps); lost 30 s: pauses 30",
        ),
        (spent(100), "100 s, 100 % new steps"),
        (spent(59, start_up=50), ""),
        (spent(3600, by_steps=False, attempts=1, start_up=2), ""),
    ],
)
def test_one_line_says_it_at_the_end(found, said):
    """The largest loss first, in one unit; nothing where nobody would ask."""
    assert line(found) == said


def test_document_has_all_parts():
    """Programs get seconds, and null for an ETTR that nobody can know."""
    told = json.loads(json.dumps(document(LONG)))
    assert told["ettr"] == round(LONG.ettr, 4)
    assert set(told["lost_s"]) == set(LOST)
    assert document(spent(10, by_steps=False))["ettr"] is None


@pytest.fixture
def recording():
    """Give the lines of a recorded journal, by its name."""
    return lambda name: (RECORDINGS / f"{name}.jsonl").read_text().splitlines()


@pytest.mark.parametrize("waiting", [1, 300])
def test_live_and_afterwards_come_to_the_same(recording, waiting):
    """The agent's own ledger is the one that its journal tells, to the last digit."""
    keeper, lines = Timekeeper(), recording("progress-killed-restarted")
    turns: list = []
    for entry in journal.entries(lines[1:]):
        if entry.event is not None:
            turns.append((entry.event, []))
        else:
            turns[-1][1].append(entry.command)
    for number, (event, commands) in enumerate(turns):
        keeper.tell(event, commands)
        if number % waiting == 0:
            keeper.document(0.0)

    told = keeper.document(0.0)

    twice = [line for line in lines for _ in (0, 1)]
    found = balance(of_journal(twice))
    assert found is not None
    assert told == document(found)
    assert told["lost_s"]["pause"] > 0


def test_what_cannot_be_read_is_passed_over(recording):
    """A journal that is cut or damaged still tells what it can."""
    lines = recording("progress-killed-restarted")
    damaged = [*lines[:4], "{", '{"n":3}', "[1]", *lines[4:], lines[-1][:20]]
    assert of_journal(damaged) == of_journal(lines)
