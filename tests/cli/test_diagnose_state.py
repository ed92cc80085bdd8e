"""What dsup diagnose says of a run: its state, its repeated deaths, where to look."""

import json
import re

import pytest

from dsup.core.verdict import Advice, Evidence, Verdict
from dsup.report.verdict_file import encode

LONG = "because of this and that, " * 10
KILLED = Verdict(
    attempt=0,
    cause="killed",
    first_ranks=(1,),
    certainty="proven",
    at_s=3.0,
    summary="Rank 1 was killed by SIGKILL of unknown sender.",
    rule="killed",
    evidence=(
        Evidence("status", "rank 1 ended with SIGKILL", 1, 3.0),
        Evidence("kernel", "looked at, no process of this run: segfault", None, 2.0),
    ),
    advice=Advice("find_sender", "find the sender"),
    status=-9,
    signature="killed",
)


def kept(**fields):
    """Return a verdict.json."""
    verdict = KILLED._replace(**fields)
    return encode(verdict, node="gpu-a17", offset_s=1e9, ended=(137, "rank"))


def edited(run, *lines):
    """Put other lines in the place of a journal's last one."""
    journal = run / "events.jsonl"
    old = journal.read_text().splitlines()[:-1]
    new = [json.dumps({"n": len(old) + n, **line}) for n, line in enumerate(lines)]
    journal.write_text("".join(f"{line}\n" for line in [*old, *new]))


def source(dsup):
    """Return what programs are told of the newest run."""
    return json.loads(dsup("diagnose", "--json").out)["sources"][0]


@pytest.mark.parametrize(
    ("lines", "state"),
    [
        pytest.param(
            [{"command": "exit", "code": 137, "origin": "rank"}], "failed", id="failed"
        ),
        pytest.param(
            [{"command": "exit", "code": 0, "origin": "rank"}], "finished", id="0"
        ),
        pytest.param([], "gone", id="the journal just ends"),
        pytest.param(
            [
                {"event": "signalled", "at_s": 5.0, "signum": 15, "sender_pid": 7},
                {"command": "exit", "code": 143, "origin": "dsup"},
            ],
            "stopped",
            id="a signal",
        ),
    ],
)
def test_programs_are_told_what_became_of_a_run_in_one_word(
    dsup, failed_run, lines, state
):
    """Nobody has to read a sentence for it."""
    edited(failed_run(), *lines)

    assert source(dsup)["state"] == state


def test_programs_are_told_which_evidence_was_dismissed(dsup, failed_run):
    """What was looked at and is no proof is a fact of its own."""
    failed_run(attempt_0__verdict_json=kept())
    (verdict,) = json.loads(dsup("diagnose", "--json").out)["verdicts"]

    assert [one["dismissed"] for one in verdict["evidence"]] == [False, True]


def again(dsup, failed_run):
    """Make a run that died alike twice."""
    run = failed_run(
        attempt_0__verdict_json=kept(), attempt_1__verdict_json=kept(attempt=1)
    )
    plan = {"event": "plan_agreed", "at_s": 5.0, "reason": f"{LONG}the end"}
    edited(
        run,
        {**plan, "attempt": 0, "restart_at_s": 6.0, "code": 137},
        {"command": "prepare", "attempt": 1},
        {**plan, "attempt": 1, "restart_at_s": None, "code": 137},
        {"command": "exit", "code": 137, "origin": "rank"},
    )
    return run


def test_a_death_that_came_back_is_told_beside_what_to_do(dsup, failed_run):
    """The earlier attempt is one short line, and the repetition has a row."""
    again(dsup, failed_run)
    said = dsup("diagnose").out
    row = re.search(r"(?m)^ again    (.+)\n +(.+)", said)

    assert "attempt 0, 01:46:43: the same (killed of rank 1)\n" in said
    assert row
    assert f"{row[1]} {row[2]}" == (
        "attempts 0-1 died the same way, each time rank 1: starting again did not help"
    )
    assert source(dsup)["compared"] == {
        "signature": "killed",
        "attempts": [0, 1],
        "same_ranks": True,
    }


def test_what_followed_is_not_cut_where_a_person_asked(dsup, failed_run):
    """The useful part of a long reason may be its end."""
    again(dsup, failed_run)
    said = dsup("diagnose").out

    assert "the end\n" in said
    assert max(map(len, said.splitlines())) <= 200


def test_where_to_look_is_the_log_that_says_something(dsup, failed_run):
    """An empty stderr.log is not worth to be opened."""
    failed_run(
        attempt_0__verdict_json=kept(),
        attempt_0__1__stderr_log=b"",
        attempt_0__1__stdout_log=b"bye\n",
    )

    assert "attempt_0/1/stdout.log" in dsup("diagnose").out


def test_runs_of_one_name_are_told_with_what_became_of_them(dsup, failed_run):
    """To choose among them a person needs more than their names."""
    one, other = failed_run(), failed_run("20991130T022749Z-train-a0b409_gpu-a17")
    edited(other)
    said = dsup("diagnose", "train-a0b40")

    assert said.code == 2
    assert f"{one.name} (failed)" in said.err
    assert f"{other.name} (gone)" in said.err


def test_a_file_that_is_not_there_is_no_run_that_is_not_there(dsup, failed_run):
    """A name with an ending was meant as a file."""
    failed_run()
    said = dsup("diagnose", "nosuch.log")

    assert said.code == 2
    assert "there is no such file here" in said.err


def test_a_kernels_log_is_told_from_a_rank_log(dsup, home):
    """No end of a rank is in it, but there is a command that reads it."""
    (home / "saved.log").write_text(
        "[   12.345678] NVRM: Xid (PCI:0000:4b:00): 79, gone\n"
    )

    assert "dsup kernel-log saved.log" in dsup("diagnose", "saved.log").out


@pytest.mark.parametrize(
    ("option", "name"), [("--html", "train.log"), ("--bundle", "data.tar.gz")]
)
def test_a_file_that_dsup_did_not_make_is_not_replaced(
    dsup, home, failed_run, option, name
):
    """A name in the wrong place must not cost a log, or a data set."""
    failed_run()
    (home / name).write_bytes(b"mine")
    said = dsup("diagnose", option, name)

    assert said.code == 2
    assert "dsup did not make it" in said.err
    assert (home / name).read_bytes() == b"mine"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("option", "name"), [("--html", "r.html"), ("--bundle", "b.tar.gz")]
)
def test_what_dsup_made_is_made_anew(dsup, home, failed_run, option, name):
    """The same call twice is no mistake."""
    failed_run()
    dsup("diagnose", option, name)

    assert dsup("diagnose", option, name).code == 0


def test_a_page_below_no_directory_is_a_wrong_call(dsup, home, failed_run):
    """As one is that is to take the place of a directory."""
    failed_run()
    (home / "d").mkdir()

    assert [dsup("diagnose", "--html", p).code for p in ("no/x.html", "d")] == [2, 2]


@pytest.mark.slow
def test_the_page_of_a_bundle_names_the_bundle(dsup, home, failed_run):
    """Where it was unpacked is gone before anybody reads the page."""
    failed_run(
        attempt_0__verdict_json=kept(cause="python_exception"),
        attempt_0__1__stderr_log=b"KeyError: 'lr'\n",
    )
    dsup("diagnose", "--bundle", "out.tar.gz")
    page = dsup("diagnose", "out.tar.gz", "--html", "-").out

    assert "/dsup-" not in page
    assert "Run directory run in out.tar.gz" in page
    assert "tar -xzOf out.tar.gz run/" in page.replace("<wbr>", "")


def test_the_page_of_a_killed_rank_sends_nobody_to_its_output(dsup, failed_run):
    """Who was killed did not say by whom; what it had printed is no clue."""
    failed_run(attempt_0__verdict_json=kept(), attempt_0__1__stdout_log=b"bye\n")

    assert "tail -n" not in dsup("diagnose", "--html", "-").out


def test_the_page_of_a_log_shows_the_log(dsup, home):
    """The lines around the proof, unfolded."""
    lines = [
        *(f"step {number}" for number in range(100)),
        "[rank1]: Traceback (most recent call last):",
        '[rank1]:   File "train.py", line 3, in <module>',
        "[rank1]: ValueError: batch 812 has no labels",
        *(f"bye {number}" for number in range(100)),
    ]
    (home / "train.log").write_text("\n".join(lines))
    page = dsup("diagnose", "train.log", "--html", "-").out

    assert "log <b>train.log</b>" in page
    assert "<details open><summary><b>The log around the proof</b>" in page
    assert "lines 63 to 113" in page
    assert [f"step {n}\n" in page for n in (61, 62, 99)] == [False, True, True]
    assert [f"bye {n}\n" in page for n in (9, 10)] == [True, False]


def test_a_log_without_a_failure_has_a_page_as_well(dsup, home):
    """There is something to say, and it is good."""
    (home / "train.log").write_text("step 1 loss 2.0\nstep 2 loss 1.9\ndone\n")
    page = dsup("diagnose", "train.log", "--html", "-").out

    assert "<h1>Train.log tells of no failure</h1>" in page
