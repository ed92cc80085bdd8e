"""Stories made of journals and of logs."""

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsup.facts.samples import Sample
from dsup.report import account as accounts
from dsup.report import hindsight
from dsup.report.html import command
from dsup.report.html.moments import moments
from dsup.report.html.page import render
from dsup.report.html.story import Frame, Run, Told, of_log, of_run, shifted
from dsup.report.html.timeline import whole_run

SPEC = {
    "world_size": 2,
    "settle_s": 2.0,
    "grace_s": 25.0,
    "keep_helpers": False,
    "policy": {
        "max_restarts": 1,
        "backoff_s": [1.0],
        "healthy_after_s": 1800.0,
        "restart_on_user": False,
        "checkpoints_known": False,
    },
    "also_stop": [],
    "stop_after_s": None,
}
OFFSET_S = 1_796_047_000.0


def journal(*more):
    """Return a journal of a run whose rank 1 failed after two steps."""
    lines = [
        {"n": 0, "journal": 1, "spec": SPEC},
        {"n": 1, "event": "launched", "at_s": 1.0},
        {"n": 2, "command": "prepare", "attempt": 0},
        {
            "n": 3,
            "event": "prepared",
            "at_s": 1.1,
            "attempt": 0,
            "port": 29500,
            "resume_from": "",
        },
        *(
            {
                "n": 4 + r,
                "event": "rank_started",
                "at_s": 1.2 + r / 10,
                "attempt": 0,
                "rank": r,
                "pid": 70 + r,
            }
            for r in (0, 1)
        ),
        {"n": 6, "event": "progressed", "at_s": 3.0, "attempt": 0, "step": 1},
        {"n": 7, "event": "progressed", "at_s": 4.0, "attempt": 0, "step": 2},
        ended(8, 5.0, 1, 1),
        {
            "n": 9,
            "command": "signal_ranks",
            "attempt": 0,
            "ranks": [0],
            "signum": 15,
        },
        ended(10, 5.3, 0, -15),
        {"n": 11, "event": "group_empty", "at_s": 5.4, "attempt": 0},
        {
            "n": 12,
            "event": "scanned",
            "at_s": 5.5,
            "attempt": 0,
            "step": 1,
            "path": "ckpt/1",
            "error": "",
        },
        *more,
    ]
    return [json.dumps(line, separators=(",", ":")) for line in lines]


def ended(n, at_s, rank, status):
    """Return a line of a rank's end."""
    return {
        "n": n,
        "event": "rank_exited",
        "at_s": at_s,
        "late_s": 0.0,
        "attempt": 0,
        "rank": rank,
        "status": status,
        "dying": [],
    }


def story_of(lines, **more):
    """Return the story of a journal."""
    told = accounts.account(lines)
    number = told.attempt
    verdict = shifted(hindsight.from_journal(told, number), OFFSET_S)
    run = Run(
        path="/runs/r1",
        known=KNOWN,
        lines=lines,
        offset_s=OFFSET_S,
        told=[Told(verdict, "n1", "", (1, "rank"))],
        outcome="the run was given up with exit code 1: it repeats itself",
        made_s=OFFSET_S + 60,
        dsup="0.1.0",
    )
    return of_run(told, run._replace(**more))


KNOWN = {
    "host": "n1",
    "kernel": "6.12",
    "python": "3.11.7",
    "argv": ["/bin/python", "-u", "train.py", "--api-key=s3cret", "--token", "t0p"],
    "options": {
        "nproc": {"value": "2", "origin": "command line"},
        "script": {"value": "train.py", "origin": "command line"},
        "args": {"value": "--api-key=s3cret --token t0p", "origin": "command line"},
        "settle": {"value": "2.0", "origin": "default"},
    },
    "environment": {"NCCL_DEBUG": "INFO", "NCCL_TOKEN": "x", "HOME": "/root"},
}


def test_times_of_a_journal():
    """When ranks began and ended, and when dsup signalled, is what the journal says."""
    attempt = story_of(journal()).attempts[0]

    assert [life.start_s - OFFSET_S for life in attempt.ranks] == [
        pytest.approx(1.2),
        pytest.approx(1.3),
    ]
    assert [life.status for life in attempt.ranks] == [-15, 1]
    assert [life.pid for life in attempt.ranks] == [70, 71]
    assert attempt.start_s == OFFSET_S + 1.0
    assert attempt.end_s == pytest.approx(OFFSET_S + 5.4)
    assert [(s.at_s - OFFSET_S, s.signum, s.ranks) for s in attempt.signals] == [
        (5.0, 15, (0,))
    ]


def test_steps_of_a_journal():
    """Start-up ends with the first new step; the last one is the attempt's."""
    attempt = story_of(journal()).attempts[0]

    assert [life.ready_s - OFFSET_S for life in attempt.ranks] == [3.0, 3.0]
    assert attempt.stepped == ((OFFSET_S + 3.0, 1), (OFFSET_S + 4.0, 2))


def test_samples_know_better():
    """Phases and steps of samples tell each rank's start-up, and its last step."""
    samples = [
        Sample(1.5, {0: 10, 1: 10}, phases={0: "init", 1: "init"}),
        Sample(2.5, {0: 10, 1: 10}, phases={0: "train", 1: "init"}),
        Sample(3.5, {0: 10, 1: 10}, {0: 2, 1: 1}, {0: "checkpoint", 1: "train"}),
        Sample(4.5, {0: 10, 1: 10}, {0: 2, 1: 1}, {0: "checkpoint", 1: "train"}),
    ]
    attempt = story_of(journal(), samples={0: samples}).attempts[0]

    assert [life.ready_s - OFFSET_S for life in attempt.ranks] == [2.5, 3.5]
    assert [life.step for life in attempt.ranks] == [2, 1]
    assert attempt.checkpoints == (OFFSET_S + 3.5,)


def test_what_to_do():
    """Advice, and the way on from the newest checkpoint: nothing that only fills."""
    todo = story_of(journal()).todo

    assert todo[0].text == (
        "Then launch again: checkpoint 1 is complete (ckpt/1); "
        "1\N{NO-BREAK SPACE}step is lost."
    )
    assert todo[0].command.startswith("dsup launch --nproc=2 train.py")
    assert len(todo) == 1


def test_secrets_are_masked():
    """Neither an argument nor a variable that is named like a secret is shown."""
    story = story_of(journal())
    page = render(story)

    assert "--api-key=***" in story.command
    assert story.environment == (("NCCL_DEBUG", "INFO"), ("NCCL_TOKEN", "***"))
    assert "s3cret" not in page
    assert "t0p" not in page
    assert "/root" not in page


@pytest.mark.parametrize(
    "known",
    [
        {},
        {"argv": "x", "options": [], "environment": 5, "host": 1},
        {"argv": [1, None], "options": {"a": 1, "script": {"value": 2}}},
        {"options": {"script": {"value": "t.py", "origin": "command line"}}},
    ],
)
def test_run_file_of_any_kind(known):
    """What run.json does not say is left out."""
    story = story_of(journal(), known=known)

    assert story.command == ""
    assert command.environment(known) == ()
    assert "Rank 1" in render(story)


def test_run_that_goes_on():
    """A run that nothing is known to have gone wrong with has a page, too."""
    lines = journal()[:8]
    told = accounts.account(lines)
    run = Run("/runs/r1", {}, lines, OFFSET_S, [], "the run goes on", OFFSET_S + 9)
    page = render(of_run(told, run))

    assert "The run goes on" in page
    assert "Evidence" not in page
    assert "<svg" in page


def test_odd_journal_lines_are_passed_over():
    """Garbage, a cut line and an impossible time cost themselves only."""
    odd = ["{", "null", '{"n":99,"event":"tick","at_s":1e999}', journal()[8][:40]]
    odd += ['{"n":98,"event":"progressed","at_s":1e300,"attempt":0,"step":5}']
    odd += ['{"n":98,"event":"progressed","at_s":+.e-,"attempt":0,"step":5}']

    assert moments(journal() + odd)[0].last == moments(journal())[0].last


@pytest.mark.slow
def test_a_step_a_line_is_read_fast():
    """A journal of 200,000 steps is read in linear time."""
    line = '{{"n":{0},"event":"progressed","at_s":{0}.5,"attempt":0,"step":{0}}}'
    lines = journal() + [line.format(n) for n in range(20, 200_020)]

    assert moments(lines)[0].last.step == 200_019


numbers = st.one_of(
    st.floats(), st.integers(-(2**70), 2**70), st.sampled_from([0.0, 1e300, -1e300])
)


@settings(max_examples=30)
@given(
    st.lists(st.tuples(numbers, st.integers(-5, 5), st.integers(-300, 300)), max_size=6)
)
def test_journal_with_any_numbers(found):
    """Whatever numbers a journal has, there is a page."""
    more = [
        ended(20 + n, at_s, rank, status)
        for n, (at_s, rank, status) in enumerate(found)
    ]

    assert "</html>" in render(story_of(journal(*more)))


def test_log_of_several_attempts(stories):
    """Attempts of a log are numbered in its order; the page is about the last."""
    start_s = stories.start_s
    later = tuple((r, start_s + 100, start_s + 190) for r in range(4))
    found = [stories.finding(), stories.finding(start_s + 150, later)]
    story = of_log(found, frame=Frame("x.log", start_s))

    assert [attempt.number for attempt in story.attempts] == [0, 1]
    assert story.main.verdict.attempt == 1
    assert "Both attempts compared" in render(story)


@settings(max_examples=30)
@given(st.lists(st.tuples(st.integers(0, 9), st.floats(), st.floats()), max_size=8))
def test_log_with_any_spans(spans):
    """Whatever times a log has, there is a page."""
    from types import SimpleNamespace

    from dsup.core.verdict import Verdict

    verdict = Verdict(0, "unknown", (1,), "guess", math.nan, "Rank 1 may have.", "x")
    found = SimpleNamespace(
        verdict=verdict, nodes=(), launcher="", world_size=None, spans=tuple(spans)
    )

    assert "</html>" in render(of_log([found], frame=Frame("x", 0.0)))


def test_a_run_that_goes_on_is_drawn_until_now():
    """Its ranks have no end yet, and the last event was at their start."""
    lines = journal()[:6]
    told = accounts.account(lines)
    made_s = OFFSET_S + 100.0
    run = Run("/runs/r1", KNOWN, lines, OFFSET_S, (), "the run goes on", made_s)
    chart = whole_run(of_run(told, run._replace(running=True)))

    assert [bar.right - bar.left > 700 for bar in chart.bars] == [True, True]
    assert [text.text for text in chart.texts if text.text == "runs"] == ["runs"] * 2
    assert "now, in attempt 0" in [text.text for text in chart.texts]


def test_the_end_of_a_rank_stands_in_a_line_of_the_journal():
    """So that whoever doubts it can look."""
    (one,) = [e for e in story_of(journal()).main.verdict.evidence if e.rank == 1]

    assert (one.file, one.line) == ("events.jsonl", 9)


def test_the_command_of_a_page_has_no_secret_of_any_form():
    """Also where the dsup that wrote run.json masked less."""
    words = ["postgres://u:s3cret@h/d", '{"password": "s3cret"}', "+a.api_key=s3cret",
             "X_TOKEN=s3cret", "--hf-auth", "s3cret", "hf_s3cretabcdefghijklmnop",
             "--lr", "1"]  # fmt: skip
    known = {
        "argv": ["python", "train.py", *words],
        "options": {
            "script": {"value": "train.py", "origin": "command line"},
            "log-dir": {"value": "s3://u:s3cret@h/d", "origin": "command line"},
        },
        "environment": {
            "NCCL_HOW": "a://u:s3cret@h",
            "NCCL_CUT": "x" * 985 + " b://s3cret:long@h",
        },
    }
    told = (
        command.launched(known), command.options(known), command.environment(known)
    )  # fmt: skip

    assert "s3cret" not in repr(told)
    assert told[0].startswith("dsup launch '--log-dir=s3://***@h/d' train.py")
    assert told[0].endswith("--lr 1")
