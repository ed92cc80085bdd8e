"""How dsup speaks: quiet, normal, verbose; text or JSON."""

import json
from typing import get_args

import pytest

from dsup.core import events as ev
from dsup.core.job import Voice
from dsup.core.output import Tone
from dsup.report import voice


@pytest.mark.parametrize(
    ("level", "said"),
    [
        ("quiet", {"warning", "failure"}),
        ("normal", {"plain", "warning", "failure"}),
        ("verbose", {"plain", "warning", "failure"}),
    ],
)
def test_the_quiet_leave_out_what_went_well(level, said):
    """Whatever went wrong is always said."""
    assert {tone for tone in get_args(Tone) if voice.is_said(tone, level)} == said


def test_a_line_of_text_names_who_speaks():
    """Ranks' lines and dsup's can be told apart."""
    assert voice.worded("2 ranks", "plain", Voice(), 0.0) == "dsup: 2 ranks"


@pytest.mark.parametrize(
    ("tone", "level"),
    [("plain", "info"), ("warning", "warning"), ("failure", "error")],
)
def test_a_line_of_json_has_time_and_level(tone, level):
    """One object a line, whatever is in the text."""
    line = voice.worded('a "b"', tone, Voice(json=True), 1.5)

    assert "\n" not in line
    assert json.loads(line) == {
        "time": "1970-01-01T00:00:01.500000+00:00",
        "level": level,
        "program": "dsup",
        "message": 'a "b"',
    }


@pytest.mark.parametrize(
    ("event", "said"),
    [
        (ev.RankStarted("rank_started", 0.0, 0, 3, 4003), "rank 3 is pid 4003"),
        (
            ev.RankExited("rank_exited", 0.0, 0.0, 0, 3, 0, ()),
            "rank 3 ended with exit code 0",
        ),
        (ev.RankExited("rank_exited", 0.0, 0.0, 0, 3, 9, ()), ""),
        (ev.Progressed("progressed", 0.0, 0, 70), "every rank finished step 70"),
        (ev.Scanned("scanned", 0.0, 0, None, "", ""), "newest checkpoint: none"),
        (
            ev.SelfStopping("self_stopping", 0.0, 0, (0, 1)),
            "ranks 0-1 can stop at a step",
        ),
        (
            ev.ChecksCounted("checks_counted", 0.0, 0, 17),
            "the ranks leave their loops at check 18",
        ),
        (
            ev.HangSuspected("hang_suspected", 7.4, 0, (0, 1, 2), "stalled", 5.0, 0.1),
            "ranks 0-2 made no step for 2.4 s (usual 0.1 s): stacks are taken",
        ),
        (
            ev.HangSuspected("hang_suspected", 7.4, 0, (3,), "silent", 5.0, None),
            "rank 3 gave no sign of life for 2.4 s: stacks are taken",
        ),
        (
            ev.HangCleared("hang_cleared", 8.0, 0, (0, 1)),
            "no longer suspected: ranks 0-1",
        ),
        (
            ev.Captured("captured", 7.6, 0, False, (), "", ""),
            "the stacks are taken; they name nobody who did not come",
        ),
        (
            ev.Straggles("straggles", 9.0, 0, 3, 0.0, ""),
            "rank 3 keeps up with its peers again",
        ),
        (ev.Tick("tick", 0.0), ""),
    ],
)
def test_the_verbose_hear_what_else_happens(event, said):
    """Only of events that have no line of their own."""
    assert voice.detail(event) == said
