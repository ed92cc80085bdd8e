"""Who hangs, where, and why: real ranks over gloo, ended after a short limit."""

import json
from pathlib import Path

import pytest

pytestmark = [pytest.mark.dsup_only, pytest.mark.slow]

WORKER = Path(__file__).parent / "workers/hanging.py"
UNSEEN_S = "3"

LINES = WORKER.read_text().splitlines()


def line_of(text):
    """Return ``hanging.py:N`` of the one line of the worker that is so."""
    (number,) = [n for n, line in enumerate(LINES, 1) if line.strip() == text]
    return f"hanging.py:{number}"


def judged(run, kind, limit, *tell, ranks=3, **more):
    """Launch ranks of which the last one hangs; return verdict and exit code."""
    options = f"--nproc {ranks} --max-restarts 0 --hang-after {limit}"
    run.start(options, kind, str(ranks - 1), *tell, script=WORKER, **more)
    code = run.ended()
    verdict = json.loads((run.run_dir() / "attempt_0/verdict.json").read_text())
    run.nothing_left()
    return verdict, code


STUCK = line_of("os.read(silence, 1)  # as in a call that never returns")
WAITING = line_of("dist.all_reduce(number)  # a step")


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        pytest.param("before", f"at {STUCK}, before all_reduce", id="before"),
        pytest.param(
            "locks",
            f"with its thread at {line_of('with first:  # the second one')}",
            id="two locks",
        ),
        pytest.param(
            "loader",
            f"a worker is at {line_of('os.read(silence, 1)  # as storage does')}",
            id="a DataLoader",
        ),
        pytest.param(
            "asleep",
            "asleep in the kernel (state D",
            id="state D",
            marks=pytest.mark.soak,
        ),
        pytest.param(
            "stop",
            "stopped by SIGSTOP (state T)",
            id="SIGSTOP",
            marks=pytest.mark.soak,
        ),
    ],
)
def test_a_rank_that_hangs_is_named_with_its_place(run, kind, words):
    """Of an unmodified script, by states and stacks alone."""
    verdict, code = judged(run, kind, UNSEEN_S)

    assert (verdict["cause"], verdict["first_ranks"]) == ("hang", [2]), verdict
    assert words in verdict["summary"]
    assert code == verdict["exit"]["code"] == 194
    told = [line["text"] for line in verdict["evidence"] if line["source"] == "stack"]
    assert f"ranks 0 and 1 wait in all_reduce, at {WAITING}" in "\n".join(told)
    assert verdict["ended_by_dsup"] == [0, 1, 2]


@pytest.mark.soak
@pytest.mark.parametrize(
    ("kind", "words"),
    [
        pytest.param("before", f"Rank 2 hung at {STUCK}, before", id="before"),
        pytest.param("stop", "stopped by SIGSTOP (state T)", id="SIGSTOP"),
    ],
)
def test_with_the_runtime_it_is_proven(run, kind, words):
    """Stacks taken when the hang was suspected say the same as those at its end."""
    verdict, code = judged(run, kind, "train=8", "tell")

    assert (verdict["cause"], verdict["first_ranks"]) == ("hang", [2]), verdict
    assert verdict["certainty"] == "proven"
    assert words in verdict["summary"]
    assert code == 194


def of_order(verdict):
    """Return what flight recorders have told."""
    return [line["text"] for line in verdict["evidence"] if line["source"] == "order"]


def test_flight_recorders_tell_the_number(run):
    """They and the stacks agree on who did not come, by its number."""
    verdict, code = judged(run, "before", "train=8", "tell", env={"RECORDING": "1"})

    assert verdict["rule"] == "called_out_of_order", verdict
    assert (verdict["cause"], verdict["first_ranks"]) == ("hang", [2])
    assert verdict["certainty"] == "proven"
    assert verdict["summary"] == (
        f"Rank 2 hung at {STUCK}, before all_reduce #42; the other 2 wait for it there."
    )
    assert of_order(verdict) == [
        "rank 2 finished #41; ranks 0 and 1 are inside all_reduce #42",
        f"rank 2 called last: all_reduce #41 [1] Float at {WAITING} in step",
    ]
    text = (run.run_dir() / "attempt_0/0/stacks.txt").read_text()
    assert "group 0 (default_pg): #42 called, #41 finished" in text
    assert code == 194


@pytest.mark.soak
def test_flight_recorders_tell_another_function(run):
    """What was called by the same number is told of both."""
    verdict, code = judged(run, "branch", "train=8", "tell", env={"RECORDING": "1"})

    assert (verdict["cause"], verdict["first_ranks"]) == ("collective_mismatch", [2])
    assert "Rank 2 called broadcast as #42" in verdict["summary"]
    assert verdict["certainty"] == "proven"
    assert code == 1


def test_a_rank_in_another_collective(run):
    """It has taken a branch: what it calls, and what the others call."""
    verdict, code = judged(run, "branch", UNSEEN_S)

    assert verdict["cause"] == "collective_mismatch"
    assert verdict["first_ranks"] == [2]
    assert "called broadcast where the other 2 called all_reduce" in verdict["summary"]
    assert code == 1


def test_a_rank_alone_in_a_collective(run):
    """Nobody else ever comes: the one that waits is named, not those that do not."""
    verdict, _ = judged(run, "extra", UNSEEN_S)

    assert (verdict["cause"], verdict["first_ranks"]) == ("hang", [2]), verdict
    assert "alone in all_reduce" in verdict["summary"]


@pytest.mark.parametrize(
    "tell",
    [
        pytest.param((), id="unmodified"),
        pytest.param(("tell",), id="runtime", marks=pytest.mark.soak),
    ],
)
def test_a_rank_that_leaves_early(run, tell):
    """Exit 0 while the others still need it is the cause of what follows."""
    verdict, code = judged(run, "leave", UNSEEN_S, *tell)

    assert (verdict["cause"], verdict["first_ranks"]) == ("early_exit", [2]), verdict
    assert code == 1


@pytest.mark.soak
@pytest.mark.parametrize(
    ("barrier_s", "words"),
    [
        pytest.param(
            "3", "'epoch', because rank 2 did not come", id="the barrier first"
        ),
        pytest.param("300", f"at {STUCK}, before barrier", id="dsup first"),
    ],
)
def test_a_barrier_and_dsup_name_the_same_rank(run, barrier_s, words):
    """From inside and from outside the answer is who did not come."""
    verdict, code = judged(run, "barrier", "train=10", "tell", barrier_s)

    assert (verdict["cause"], verdict["first_ranks"]) == ("hang", [2]), verdict
    told = " ".join((verdict["summary"], *(e["text"] for e in verdict["evidence"])))
    assert words in told
    assert code == 194
