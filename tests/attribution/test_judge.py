"""What every verdict has, whichever rule spoke."""

import pytest

from dsup.attribution.rules import RULES
from dsup.core.exits import CAUSES


def test_what_was_in_the_way_goes_first(incident):
    """An attempt that could not go on has its cause from dsup itself."""
    reason = "cannot start /srv/train: no such file"
    story = incident(obstacle=("spawn_error", reason)).ended(1, -9).stood(0, at=3.0)

    assert story.answer == ("obstacle", "spawn_error", (), "proven")
    assert story.verdict.summary == f"The attempt could not go on: {reason}."
    assert story.verdict.at_s == 103.0
    assert story.verdict.victims == ()


def test_an_obstacle_of_no_known_cause(incident):
    """A cause that the table does not know is unknown, and its reason is kept."""
    verdict = incident(obstacle=("weather", "it rains")).verdict

    assert (verdict.cause, verdict.certainty) == ("unknown", "unknown")
    assert "it rains" in verdict.summary


def test_victims_say_of_whom_and_how(incident):
    """A victim has its culprit, what it met, its end, and how much later."""
    story = incident().raised(1, "ValueError", "no").lost(0, at=10.3).ended(2, 1, 10.4)
    story.said(2, "giving up").stood(3)

    assert [tuple(victim) for victim in story.verdict.victims] == [
        (0, 1, "connection closed by peer, exit 1, +0.3 s"),
        (2, 1, "without a word, exit 1, +0.4 s"),
    ]
    assert story.verdict.ended_by_dsup == (3,)


def test_a_rank_with_a_cause_of_its_own_is_no_victim(incident):
    """Two independent failures are not made one."""
    story = incident().raised(1, "ValueError", "no").raised(2, "KeyError", "'x'", 10.1)

    assert story.verdict.victims == ()


def test_a_rank_that_was_gone_when_dsup_signalled_was_not_ended_by_it(incident):
    """A zombie that is signalled had ended by itself."""
    story = incident().stood(2, state="Z", at=10.1, status=-9).stood(0, 1, 3, at=10.1)

    assert story.answer == ("killed_from_outside", "killed", (2,), "proven")
    assert story.verdict.ended_by_dsup == (0, 1, 3)


def test_the_first_can_be_ended_by_dsup_all_the_same(incident):
    """A rank that raised and then did not end is both."""
    story = incident().noted(1, "ValueError", "no").lost(0, 2, 3).stood(1)

    assert story.verdict.first_ranks == (1,)
    assert story.verdict.ended_by_dsup == (1,)
    assert story.verdict.status == 1


def test_the_signature_is_the_same_in_another_attempt(incident):
    """Ranks, times, pids, addresses and numbers of the text are not part of it."""
    text = "tensor at 0x7f{0}a on rank {0} is empty"
    one = incident().raised(1, "ValueError", text.format(1), 10.0, file="t.py", line=3)
    two = incident().raised(3, "ValueError", text.format(3), 55.0, file="t.py", line=3)

    assert one.lost(0).verdict.signature == two.lost(0).verdict.signature


@pytest.mark.parametrize(
    "other",
    [
        pytest.param({"type_name": "KeyError", "text": "no"}, id="type"),
        pytest.param({"type_name": "ValueError", "text": "nan"}, id="text"),
        pytest.param({"type_name": "ValueError", "text": "no", "line": 4}, id="place"),
    ],
)
def test_the_signature_tells_failures_apart(incident, other):
    """Another type, text or place is another failure."""
    one = incident().raised(1, "ValueError", "no", file="t.py", line=3)
    two = incident().raised(1, **{"file": "t.py", "line": 3, **other})

    assert one.verdict.signature != two.verdict.signature


def test_hostile_text_stays_one_printable_line(incident):
    """A text with controls and a million characters makes one short sentence."""
    story = incident().raised(1, "ValueError", "\x1b[2J\n\r\u202e" + "x" * 1_000_000)
    verdict = story.verdict

    assert verdict.summary.isprintable()
    assert len(verdict.summary) <= 300
    assert all(line.text.isprintable() for line in verdict.evidence)
    assert all(len(line.text) <= 400 for line in verdict.evidence)


def test_every_rule_says_what_it_is_for():
    """A rule's docstring names its symptom; names are those that verdicts cite."""
    assert all("Symptom:" in (rule.__doc__ or "") for rule in RULES)
    assert len({rule.__name__ for rule in RULES}) == len(RULES) >= 15


def test_advice_is_about_causes():
    """Nothing is advised for a cause that does not exist."""
    from dsup.attribution.advice import ADVICE

    assert set(ADVICE) <= set(CAUSES)
