"""A rank whose attempt dsup ends, since another rank has failed: it goes at once.

The agent's half, a word on the page and SIGTERM, is the test's.
"""

import json

import pytest

from dsup_runtime import contract

SCRIPT = """
import ctypes, json, os, signal, threading
import dsup_runtime as rt
from dsup_runtime.adapters import JsonLinesReporter
def say(what):
    os.write(1, (json.dumps(what) + "\\n").encode())
def work():
    threading.Event().wait(0.02)
SETUP
with rt.run(reporter=JsonLinesReporter(os.environ["REPORT"])):
    BLOCK
    say("went on")
"""
WHY = "cannot go on, because rank 2 died of SIGKILL (look at the rank it names)"


@pytest.fixture
def lose(start, make_page, tmp_path):
    """Let a rank lose another while it works: (exit status, output, last report)."""
    path = tmp_path / "report"

    def lose_while(block, setup="", slots=3):
        page = make_page(slots=slots)
        script = SCRIPT.replace("SETUP", setup).replace("BLOCK", block)
        env = {"REPORT": str(path), "DSUP_GRACE_S": "600", "WORLD_SIZE": "3"}
        rank = start(script, page=page, env=env)
        assert rank.hear() == "works"
        words = page.words
        words[contract.HEADER_STOP_KIND] = contract.STOP_KINDS.index("peer")
        words[contract.HEADER_STOP_RANK] = 2
        reason = memoryview(b"rank 2 died of SIGKILL".ljust(64, b"\0")).cast("q")
        words[contract.HEADER_STOP_REASON :][: len(reason)] = reason
        words[contract.HEADER_STOP_STEP] = contract.AT_ONCE
        words[contract.HEADER_FREEZE] = 1
        rank.terminate()
        status, out, err = rank.finish()
        report = json.loads(path.read_text().splitlines()[-1])
        return status, [json.loads(line) for line in out.splitlines()], report, err

    return lose_while


def lost(report):
    """Return whether a report is of a run that has failed with rank 2."""
    end = report["status"], report["rank"], report["error"]
    return end == ("FAILED", 2, f"PeerError: {WHY}")


@pytest.mark.parametrize("slots", [3, 2], ids=["of all ranks", "of some"])
@pytest.mark.parametrize(
    ("before", "step"),
    [
        pytest.param("", "work()", id="no check"),
        pytest.param("rt.should_stop()", "work()", id="one check"),
        pytest.param("", "work(); rt.should_stop()", id="checks"),
    ],
)
def test_a_rank_that_meets_nobody_is_told_whom_it_lost(lose, before, step, slots):
    """By the signal itself, or at a check before; the outcome names that rank."""
    block = f'{before}\n    say("works")\n    while True: {step}'
    status, told, report, err = lose(block, slots=slots)

    assert (status, told) == (1, [])
    assert lost(report), report
    assert err.count(f"PeerError: {WHY}") == 1


@pytest.mark.parametrize(
    ("then", "more"), [("rt.should_stop()", []), ("pass", ["went on"])]
)
def test_a_checkpoint_that_is_being_written_is_written(lose, then, more):
    """The signal waits for its end, and the next check, or leaving, for no more."""
    block = f"""with rt.phase("checkpoint"):
        say("works")
        while not rt.stop.wish(): work()
        work()
        say("written")
    {then}"""
    status, told, report, _ = lose(block)

    assert (status, told) == (1, ["written", *more])
    assert lost(report), report


def test_a_script_that_saves_on_its_own_signal_has_the_grace(lose):
    """Its handler is its word on what SIGTERM is to do."""
    setup = "asked = []\nsignal.signal(signal.SIGTERM, lambda *_: asked.append(1))"
    block = """say("works")
    while not asked: work()
    work()
    say("saved")"""
    status, told, report, _ = lose(block, setup)

    assert (status, told) == (1, ["saved", "went on"])
    assert lost(report), report


def test_an_exception_on_its_way_goes_on(lose):
    """What the script does about it is not torn apart, and the outcome is its own."""
    block = """try: raise OSError("no disk")
    except OSError:
        say("works")
        while not rt.stop.wish(): work()
        work()
        say("tidied")
        raise"""
    status, told, report, _ = lose(block)

    assert (status, told) == (1, ["tidied"])
    assert report["error"] == "OSError: no disk"


@pytest.mark.slow
def test_a_rank_that_waits_in_c_code_is_not_waited_for(lose):
    """So it does for a device that waits for the rank that is gone."""
    setup = "lock = ctypes.create_string_buffer(64)"
    block = """rt.should_stop()
    say("works")
    for _ in range(2): ctypes.CDLL(None).pthread_mutex_lock(lock)"""
    status, told, report, err = lose(block, setup)

    assert (status, told) == (1, []), err
    assert lost(report), report
