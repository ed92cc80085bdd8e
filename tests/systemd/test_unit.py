"""The unit file: right by itself, and in step with what dsup does."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from dsup import agent, attempt
from dsup.cli.launch import launch
from dsup.core import enter, exits
from dsup.linux import heritage

SYSTEMD = Path(__file__).parents[2] / "systemd"
UNIT = SYSTEMD / "dsup@.service"
OF_USER = SYSTEMD / "user/dsup@.service"
PERMANENT = "RestartPreventExitStatus"
FILES_WANTED = 4096


def settings(name, unit=UNIT):
    """Return the values of a setting, in the order of their lines."""
    lines = unit.read_text().splitlines()
    pairs = (line.split("=", 1) for line in lines if "=" in line and line[0] != "#")
    return [value for key, value in pairs if key == name]


def seconds(name):
    """Return a setting that is a plain number of seconds."""
    (value,) = settings(name)
    return int(value)


@pytest.mark.systemd
@pytest.mark.slow
@pytest.mark.parametrize("which", ["plain", "hardened", "of a user"])
def test_systemd_finds_nothing_wrong(which, tmp_path):
    """Every setting is known, and every path that must be there is."""
    unit = tmp_path / UNIT.name
    shutil.copy(OF_USER if which == "of a user" else UNIT, unit)
    if which == "hardened":
        (tmp_path / f"{UNIT.name}.d").mkdir()
        shutil.copy(SYSTEMD / "hardened.conf", tmp_path / f"{UNIT.name}.d")
    done = subprocess.run(
        ["systemd-analyze", "verify", unit] + ["--user"] * (which == "of a user"),
        capture_output=True,
        check=False,
        env={"PATH": "/usr/bin:/bin", "XDG_RUNTIME_DIR": str(tmp_path)},
        text=True,
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.systemd
def test_the_user_of_the_service_can_be_made(tmp_path):
    """systemd-sysusers makes the one that the unit names, and its groups."""
    (tmp_path / "etc").mkdir()
    users = SYSTEMD / "sysusers.d/dsup.conf"
    subprocess.run(["systemd-sysusers", f"--root={tmp_path}", users], check=True)
    made = (tmp_path / "etc/passwd").read_text()

    assert [line.partition(":")[0] for line in made.splitlines()] == settings("User")
    home = made.split(":")[5]
    directories = (SYSTEMD / "tmpfiles.d/dsup.conf").read_text()
    assert re.search(rf"^d +{home} +0700 dsup dsup ", directories, re.MULTILINE)


def test_a_rank_may_open_as_many_files_as_it_needs():
    """The limit that counts, the soft one, is what the check-up wants at least."""
    for unit in (UNIT, OF_USER):
        (limit,) = settings("LimitNOFILE", unit)
        assert int(limit.partition(":")[0]) >= FILES_WANTED


def test_a_user_s_unit_differs_in_nothing_but_rights():
    """What decides about start, stop and restart is the same."""
    for name in (
        *("Type", "NotifyAccess", "KillMode", "OOMPolicy", "Delegate", PERMANENT),
        *("SuccessExitStatus", "Restart", "RestartSec", "TimeoutStartSec"),
        *("TimeoutStopSec", "WatchdogSec", "StartLimitBurst", "StartLimitIntervalSec"),
    ):
        assert settings(name, OF_USER) == settings(name), name


def test_the_agent_is_the_last_to_be_killed_for_memory():
    """It is kept, and the ranks are not: they get a score of their own."""
    (own,), (variable,) = settings("OOMScoreAdjust"), settings("Environment")
    name, _, theirs = variable.partition("=")

    assert name == attempt.OOM_SCORE
    assert int(own) < 0 < heritage.score(int(own), theirs)


def test_what_is_not_started_again_are_the_permanent_codes():
    """Below 128, and Ctrl-C: each number, because systemd knows no ranges."""
    listed = " ".join(settings(PERMANENT)).split()
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
