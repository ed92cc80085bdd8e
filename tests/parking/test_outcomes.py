"""outcome.json of an attempt whose main rank could not say how it ended."""

import json
import signal

import pytest


def outcome(run, attempt=0):
    """Return what attempt's outcome.json says."""
    return json.loads((run.run_dir() / f"attempt_{attempt}/outcome.json").read_text())


@pytest.mark.parametrize(
    ("clauses", "kill", "expected"),
    [
        pytest.param(
            ("0:die=5,step=0.01", "*:"), None, ("FAILED", 137, True), id="killed"
        ),
        pytest.param(("*:plain",), signal.SIGTERM, None, id="ended by itself"),
    ],
)
def test_the_outcome_of_a_killed_main_rank_is_written_for_it(
    run, parked, clauses, kill, expected
):
    """Rank 0 was killed by a signal and could not say how it ended: dsup does."""
    parked.start(run, "--nproc 2", *clauses)
    if kill:
        run.wait_event("ready", 2)
        run.signal(kill)
    run.ended()

    if expected is None:
        assert not (run.run_dir() / "attempt_0/outcome.json").exists()
        return
    told = outcome(run)
    found = (told["status"], told["exit_code"], told["resumable"])
    assert found == expected
    assert (told["rank"], told["written_by"]) == (0, "dsup")
    assert told["step"] == 104
    assert told["reason"] == "killed by SIGKILL"


def test_an_outcome_that_is_there_stays(run):
    """What the main rank wrote itself is never replaced by what dsup guesses."""
    script = run.files / "tells.py"
    script.write_text(
        "import os, signal\n"
        "d = os.path.join(os.environ['DSUP_RUN_DIR'], 'attempt_0')\n"
        "open(os.path.join(d, 'outcome.json'), 'w').write('{\"status\": \"KILLED\"}')\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    run.start("--nproc 1", script=script)

    assert run.ended() == 137, run.console()
    assert outcome(run) == {"status": "KILLED"}
    assert list((run.run_dir() / "attempt_0").glob("*.part")) == []


def test_an_outcome_that_was_told_is_not_made_up(run):
    """A note of kind outcome is enough: the rank has said how it ends."""
    script = run.files / "tells.py"
    script.write_text(
        "import json, os, signal, socket\n"
        "fd = int(os.environ['DSUP_NOTES'].removeprefix('fd:'))\n"
        "note = {'v': 1, 'kind': 'outcome', 'status': 'FAILED', 'exit_code': 1}\n"
        "socket.socket(fileno=fd).send(json.dumps(note).encode())\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    run.start("--nproc 1", script=script)

    assert run.ended() == 137, run.console()
    assert not (run.run_dir() / "attempt_0/outcome.json").exists()
