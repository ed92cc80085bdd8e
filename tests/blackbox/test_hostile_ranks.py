"""Ranks that do what no rank should: dsup goes on, cleans up, and says what is left."""

import fcntl
import signal
from pathlib import Path

import pytest

pytestmark = [pytest.mark.dsup_only, pytest.mark.slow]

SHM = Path("/dev/shm")  # noqa: S108 (only looked at)


@pytest.fixture
def hostile(run, proc):
    """Give ``hostile(options, deed, **how)``: a run in which rank 0 does the deed."""

    def start(options, deed, **how):
        script = proc.workers / "hostile.py"
        return run.start(options, deed, script=script, **how)

    return start


@pytest.mark.parametrize(
    ("end", "code", "how"),
    [
        pytest.param("3", 3, "ended with exit code 3", id="an exit code"),
        pytest.param("KILL", 137, "was killed by SIGKILL", id="a signal"),
    ],
)
def test_a_rank_that_a_debugger_holds_is_seen_to_end(hostile, run, end, code, how):
    """Its parent may not collect it before the debugger does; its status is there."""
    hostile("--nproc 2 --max-restarts 0", f"traced={end}")

    assert run.ended() == code, run.console()
    assert any(how in line for line in run.said()), run.console()
    run.nothing_left()


def test_a_stop_works_while_a_debugger_holds_a_dead_rank(hostile, run, proc):
    """The agent does not wait for the debugger."""
    hostile("--nproc 2 --settle 600", "traced=3")
    run.wait_event("done")
    proc.until(lambda: any("exit code 3" in s for s in run.said()), 600, run.console)
    run.signal(signal.SIGTERM)

    assert run.ended() == 143, run.console()
    run.nothing_left()


def memory_of(run):
    """Return the files of the shared memory that ranks said they have made."""
    return [SHM / event.memory for event in run.events("memory")]


def test_shared_memory_goes_with_a_failed_attempt(hostile, run):
    """Python's resource tracker has the time to unlink it before it is killed."""
    hostile("--nproc 2 --max-restarts 1", "memory=KILL")

    assert run.ended() == 0, run.console()
    assert len(memory_of(run)) == len(run.events("again")) == 2
    assert [path for path in memory_of(run) if path.exists()] == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_shared_memory_goes_with_a_stop(hostile, run, number):
    """A stop leaves as little behind."""
    hostile("--nproc 2", "memory=never")
    run.wait_event("done", 2)
    run.signal(number)

    assert run.ended() == 128 + number, run.console()
    assert len(memory_of(run)) == 2
    assert [path for path in memory_of(run) if path.exists()] == []


def test_a_full_temporary_directory_is_removed_or_named(hostile, run):
    """What cannot be removed in time is not left without a word."""
    hostile("--nproc 1", "crowd=3000")

    assert run.ended() == 0, run.console()
    left = list(run.tmp.glob("dsup*"))
    told = [line for line in run.said() if f"cannot remove all of {run.tmp}" in line]
    assert len(left) == len(told), (left, told)


def test_a_removed_run_directory_is_no_reason_to_give_up(hostile, run):
    """Logs are no condition of a restart."""
    hostile("--nproc 2 --max-restarts 1", "remove-logs=KILL")

    assert run.ended() == 0, run.console()
    assert len(run.events("again")) == 2


REFORKING = """
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>
int main(void) {
    time_t end = time(0) + 20;  /* of the program, if this test fails */
    FILE *events = fopen(getenv("DSUP_TEST_EVENTS"), "a");
    fputs("{\\"name\\": \\"go\\", \\"rank\\": 0, \\"pid\\": 0}\\n", events);
    fflush(events);
    flock(fileno(events), LOCK_EX);  /* held until none of them lives */
    while (time(0) < end)
        if (fork() > 0) _exit(0); else usleep(%d);
}
"""


@pytest.mark.parametrize("pause_us", [0, 300])
def test_what_forks_faster_than_it_is_found_is_never_overlooked(
    hostile, run, compiled, pause_us
):
    """It is killed, or the node is called unfit: no run ends as if all was well."""
    program = compiled(REFORKING % pause_us)
    hostile("--nproc 2", f"run-on={program}")
    code = run.ended()

    assert code in (3, 193), run.console()
    if code == 3:
        with (run.files / "events").open() as events:
            fcntl.flock(events, fcntl.LOCK_EX | fcntl.LOCK_NB)
