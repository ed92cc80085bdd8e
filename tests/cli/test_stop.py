"""``dsup stop`` of runs that cannot be stopped; ``blackbox/test_control`` stops one."""

import fcntl

import pytest

from dsup_runtime import contract

OLDER = "20991130T012748Z-train-b0b408_gpu-a17"


def test_a_run_that_is_over_says_what_became_of_it(dsup, failed_run):
    """Nothing is there to be stopped."""
    path = failed_run()
    said = dsup("stop")

    assert said.code == 2
    assert said.err == (
        f"dsup: cannot stop {path.name}, because the run was given up with exit code "
        "137\n"
    )


def test_those_that_still_run_are_named(dsup, failed_run):
    """The newest run was meant by nothing; perhaps another one was meant."""
    failed_run()
    (failed_run(OLDER) / contract.CONTROL_SOCKET).touch()
    said = dsup("stop")

    assert f"(still running: {OLDER})" in said.err


@pytest.mark.parametrize(
    ("host", "reason"),
    [
        ("elsewhere", "because it runs on elsewhere, and this is "),
        (None, "there is no such socket"),
    ],
)
def test_a_run_that_cannot_be_reached_says_why(dsup, failed_run, host, reason):
    """It runs on another node, or its socket was removed."""
    path = failed_run(known={"host": host})
    journal = path / contract.JOURNAL_FILE
    lines = journal.read_text().splitlines(keepends=True)
    journal.write_text("".join(lines[:5]))
    with journal.open() as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        said = dsup("stop", str(path))

    assert said.code == 2
    assert reason in said.err
