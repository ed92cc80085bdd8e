"""A real run's directory as a page."""

import os
import subprocess
import sys
import time
from typing import cast

import pytest

from dsup.cli.run_files import read_run
from dsup.report import account as accounts
from dsup.report.html.page import render
from dsup.report.html.story import Run, Told, of_run
from dsup.report.typed import a_dict

SCRIPT = """
import os, time
rank = int(os.environ["RANK"])
print("hello from rank", rank, flush=True)
here = "attempt" + os.environ["DSUP_ATTEMPT"]
os.makedirs(f"{here}/{rank}")
if rank == 2:
    while len(os.listdir(here)) < 4:
        time.sleep(0.01)
    time.sleep(0.2)
    raise ValueError("no labels </td><script>alert(1)</script>\\x1b[2J")
time.sleep(600)
"""


@pytest.fixture(scope="module")
def story(tmp_path_factory):
    """Give the story of four ranks of which rank 2 failed, twice."""
    place = tmp_path_factory.mktemp("run")
    (place / "fails.py").write_text(SCRIPT)
    command = "-m dsup launch --nproc 4 --max-restarts 1 --backoff 0.1 --log-dir runs"
    subprocess.run(
        [sys.executable, *command.split(), "fails.py", "--api-key", "s3cret"],
        cwd=place,
        capture_output=True,
        check=False,
        timeout=600,
    )
    (path,) = (place / "runs").iterdir()
    files = read_run(str(path))
    told = accounts.account(files.lines)
    clocks = a_dict(files.known["clocks"])
    names = ("realtime_ns", "monotonic_ns")
    wall_ns, agent_ns = (cast("int", clocks[name]) for name in names)
    kept = [files.verdicts[number] for number in sorted(files.verdicts)]
    verdict = kept[-1].verdict
    log = f"attempt_{verdict.attempt}/{verdict.first_ranks[0]}/stderr.log"
    with open(os.path.join(path, log), encoding="utf-8") as stream:
        output = stream.read().splitlines()
    run = Run(
        path=str(path),
        known=files.known,
        lines=files.lines,
        offset_s=(wall_ns - agent_ns) / 1e9,
        told=[Told(one.verdict, one.nodes[0], "", one.ended) for one in kept],
        outcome=accounts.outcome(told, alive=False),
        made_s=time.clock_gettime(time.CLOCK_REALTIME),
        output_place=log,
        output=output,
    )
    return of_run(told, run)


pytestmark = [pytest.mark.slow]


def test_both_attempts_are_told(story):
    """Two attempts of four ranks, rank 2 first in both, times in order."""
    assert [attempt.number for attempt in story.attempts] == [0, 1]
    for attempt in story.attempts:
        assert attempt.verdict.first_ranks == (2,)
        assert len(attempt.ranks) == 4
        assert all(life.pid and life.status for life in attempt.ranks)
        starts = [life.start_s for life in attempt.ranks]
        assert attempt.start_s <= min(starts)
        assert max(starts) < attempt.verdict.at_s <= attempt.end_s
        assert attempt.signals[0].ranks == (0, 1, 3)


def test_page_of_a_real_run(story):
    """The page says who and why, and what the rank printed stays text."""
    page = render(story)

    assert "<h1><b>Rank 2</b> raised ValueError: no labels" in page
    assert page.count("<script") == 1
    assert "\x1b" not in page
    assert "s3cret" not in page
    assert "Both attempts compared" in page
    assert "hello" not in page  # that was on stdout


def test_ledger_of_a_real_run(story):
    """All of the time is accounted for."""
    told = story.spent
    from_s, to_s = story.attempts[0].start_s, story.attempts[-1].end_s

    assert told.productive_s + sum(told.lost_s.values()) == pytest.approx(told.wall_s)
    assert told.wall_s == pytest.approx(to_s - from_s, abs=60)
    assert told.productive_s > 0 < told.lost_s["pause"]
    assert not told.by_steps
