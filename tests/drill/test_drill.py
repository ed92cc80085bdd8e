"""``dsup drill``, as an operator runs it: real jobs, broken for real."""

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from dsup.drill import shown
from dsup.drill.drill import Result
from dsup.drill.judging import Seen, Times, Word
from dsup.drill.scenarios import BY_NAME, SCENARIOS
from dsup.linux import proc

QUICK = ("kill", "raise", "torn-checkpoint", "agent-killed")


@pytest.fixture
def drill(tmp_path):
    """Give ``drill(*words)``: the command, started; nothing of it is left in the end.

    What it makes is below TMPDIR, which says of a process that it is one of these.
    """
    started = []

    def start(*words):
        process = subprocess.Popen(
            [sys.executable, "-m", "dsup", "drill", *words],
            env={**os.environ, "TMPDIR": str(tmp_path)},
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()


def processes(place):
    """Return the processes that were started with that TMPDIR, or below it."""
    mark = os.fsencode(place)
    return [
        pid
        for pid in proc.every_pid()
        if mark in proc.read_bytes(f"/proc/{pid}/environ") and proc.is_alive(pid)
    ]


@pytest.mark.slow
def test_some_scenarios(drill, tmp_path):
    """Each is judged as it must be, and nothing is left of any."""
    process = drill(*QUICK, "--json")
    told = json.loads(process.communicate()[0])

    assert told["schema"] == "dsup.drill/1"
    assert [(row["name"], row["misses"]) for row in told["scenarios"]] == [
        (name, []) for name in QUICK
    ]
    assert process.returncode == 0
    assert list(tmp_path.iterdir()) == []
    assert processes(tmp_path) == []


@pytest.mark.soak
@pytest.mark.slow
def test_all_scenarios(drill, tmp_path):
    """None fails here; what this machine does not allow is skipped, with the reason."""
    process = drill("--json")
    told = json.loads(process.communicate()[0])
    outcomes = {row["name"]: row["outcome"] for row in told["scenarios"]}

    assert list(outcomes) == list(BY_NAME)
    assert {
        row["name"]: row["misses"] for row in told["scenarios"] if row["misses"]
    } == {}
    assert all(row["skipped"] for row in told["scenarios"] if not row["verdict"])
    assert process.returncode == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("signum", "code"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)],
)
def test_a_drill_that_is_interrupted_leaves_nothing(drill, tmp_path, signum, code):
    """In the middle of two scenarios: processes and directories are gone."""
    process = drill("hang", "stop")
    while not any("--nproc" in line for line in map(command, processes(tmp_path))):
        assert process.poll() is None
        threading.Event().wait(0.05)
    process.send_signal(signum)

    assert process.wait() == code
    assert processes(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def command(pid):
    """Return the command line of a process."""
    return proc.read_text(f"/proc/{pid}/cmdline")


def test_a_miss_is_told_with_its_reason_and_the_directory():
    """What was expected, what dsup said, what is wrong, and where to look."""
    word = Word("hang", (0,), "likely", "Rank 0 likely hung at train.py:64.")
    seen = Seen(word, 0, 15, 15, Times(0.012, 1.34, None))
    miss = "the verdict names rank 0, not rank 1"
    result = Result(BY_NAME["silence"], seen, (miss,), home="/tmp/x/silence")  # noqa: S108

    table, *more = shown.rows(result)

    assert table.split() == [
        *("silence", "hang,", "rank", "1", "hang,", "rank", "0", "likely"),
        *("12", "ms", "1.3", "s", "-", "FAIL"),
    ]
    assert more == [
        f"  {miss}",
        "  dsup said: Rank 0 likely hung at train.py:64.",
        "  kept: /tmp/x/silence",
    ]
    assert shown.sentence([result], 12.0) == (
        "0 of 1 scenarios passed in 12 s; failed: silence"
    )
    assert shown.document([result], 12.0)["passed"] is False


def test_what_was_skipped_is_no_pass():
    """It is not counted, and told with the reason."""
    results = [
        Result(BY_NAME["oom"], None, skipped="needs the kernel log"),
        Result(BY_NAME["kill"], None),
    ]

    assert list(shown.rows(results[0]))[1] == "  skipped: needs the kernel log"
    assert shown.sentence(results, 3.0) == (
        "1 of 1 scenarios passed in 3 s; skipped: oom"
    )


def test_every_harm_has_its_scenario():
    """What a rank can do and what can be drilled are the same."""
    harm = Path(shown.__file__).parent / "job" / "harm.py"
    names = [one.name for one in SCENARIOS if one.harmed == "rank"]

    assert all(f'    "{name}": _' in harm.read_text() for name in names)
