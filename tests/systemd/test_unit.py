"""The unit file: right by itself, and in step with what dsup does."""

import subprocess
from pathlib import Path

import pytest

from dsup import agent
from dsup.cli.launch import launch
from dsup.core import enter, exits

UNIT = Path(__file__).parents[2] / "systemd/dsup@.service"


def settings(name):
    """Return the values of a setting, in the order of their lines."""
    lines = UNIT.read_text().splitlines()
    pairs = (line.split("=", 1) for line in lines if "=" in line and line[0] != "#")
    return [value for key, value in pairs if key == name]


def seconds(name):
    """Return a setting that is a plain number of seconds."""
    (value,) = settings(name)
    return int(value)


@pytest.mark.systemd
@pytest.mark.slow
def test_systemd_finds_nothing_wrong():
    """Every setting is known, and every path that must be there is."""
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", UNIT],
        capture_output=True,
        check=False,
        text=True,
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_what_is_not_started_again_are_the_permanent_codes():
    """Below 128, and Ctrl-C: each number, because systemd knows no ranges."""
    listed = " ".join(settings("RestartPreventExitStatus")).split()
    permanent = {*range(1, exits.SIGNALLED), exits.stop_code(exits.SIGINT)}

    assert sorted(map(int, listed)) == sorted(permanent)


def test_a_stop_by_sigterm_is_a_success():
    """The code that dsup gives it is no failure of the service."""
    assert settings("SuccessExitStatus") == [str(exits.stop_code(exits.SIGTERM))]


def test_systemd_is_more_patient_than_dsup():
    """It kills only what has outlived the grace and dsup's own SIGKILL, by far."""
    defaults = {option.name: option.default for option in launch.params}
    grace = defaults["shutdown_timeout"]

    assert seconds("TimeoutStopSec") - enter.KILL_S - 10 >= grace


def test_the_watchdog_waits_for_many_turns_of_the_loop():
    """A node that swaps for seconds is no reason to kill a run."""
    assert seconds("WatchdogSec") >= 30 * agent.LOOK_S


def test_the_first_ranks_may_take_their_time():
    """Directories and the search for a checkpoint have deadlines of dsup's own."""
    assert seconds("TimeoutStartSec") >= enter.PREPARE_S + enter.SCAN_S + 10


def test_a_run_that_fails_at_once_is_not_started_for_ever():
    """The tries that are allowed fit into the time in which they are counted."""
    assert seconds("StartLimitBurst") * seconds("RestartSec") < seconds(
        "StartLimitIntervalSec"
    )
