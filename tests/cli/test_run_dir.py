"""Where runs are kept, and what happens when they cannot be."""

import os
import stat
from pathlib import Path

import pytest

from dsup.cli.run_dir import make_run_dir
from dsup.core.errors import SpecError


def mode_of(path):
    """Return the permission bits of a path."""
    return stat.S_IMODE(os.stat(path).st_mode)


@pytest.fixture
def no_dir(tmp_path):
    """Give a path that cannot be a directory, not even for root."""
    (tmp_path / "file").write_text("")
    return str(tmp_path / "file")


@pytest.fixture
def umask():
    """Give files to everybody for the length of a test."""
    before = os.umask(0o002)
    yield
    os.umask(before)


def test_what_was_asked_for_is_used_and_follows_the_umask(tmp_path, umask):
    """An explicit --log-dir is shared as its owner's umask says."""
    path = make_run_dir("r1", str(tmp_path / "logs"), {"HOME": "/nowhere"})

    assert path == str(tmp_path / "logs/r1")
    assert (mode_of(path), mode_of(tmp_path / "logs")) == (0o775, 0o775)


def test_what_was_asked_for_may_be_relative(tmp_path, monkeypatch):
    """The run directory is absolute, whatever was asked for."""
    monkeypatch.chdir(tmp_path)

    assert make_run_dir("r1", "logs", {}) == str(tmp_path / "logs/r1")


def test_what_was_asked_for_and_cannot_be_written_is_refused(no_dir):
    """There is no second choice for what a user named."""
    with pytest.raises(SpecError) as refused:
        make_run_dir("r1", f"{no_dir}/logs", {"HOME": "/nowhere"})

    assert refused.value.exit_code == 2
    assert str(refused.value) == (
        f"cannot make a run directory in {no_dir}/logs, because not a directory "
        "(give another --log-dir)"
    )


def test_a_run_never_takes_anothers_directory(tmp_path):
    """A run directory is new."""
    make_run_dir("r1", str(tmp_path), {})

    with pytest.raises(SpecError, match="because file exists"):
        make_run_dir("r1", str(tmp_path), {})


def test_the_default_place_is_private(tmp_path, umask):
    """Without --log-dir runs are kept in the home, for their owner alone."""
    path = make_run_dir("r1", "", {"HOME": str(tmp_path)})

    assert path == str(tmp_path / ".local/state/dsup/runs/r1")
    assert mode_of(path) == 0o700


@pytest.mark.parametrize("listed", ["{}", "{}:/elsewhere"])
def test_a_service_keeps_runs_in_its_state_directory(tmp_path, listed):
    """Systemd's StateDirectory= goes before the home; the first of several counts."""
    state = tmp_path / "state"
    environment = {"STATE_DIRECTORY": listed.format(state), "HOME": str(tmp_path)}

    assert make_run_dir("r1", "", environment) == str(state / "runs/r1")


def test_a_default_place_that_fails_is_passed_over_with_one_line(
    tmp_path, no_dir, capsys
):
    """The next place is taken, and one line says why."""
    environment = {"STATE_DIRECTORY": no_dir, "HOME": str(tmp_path)}

    path = make_run_dir("r1", "", environment)

    assert path == str(tmp_path / ".local/state/dsup/runs/r1")
    assert capsys.readouterr().err == (
        f"dsup: cannot keep runs in {no_dir}/runs: not a directory\n"
    )


@pytest.mark.parametrize("home", ["{}", "", "relative"])
def test_without_a_usable_home_runs_are_kept_in_var_tmp(no_dir, capsys, home):
    """The last place is the user's own directory in /var/tmp."""
    name = f"test-{os.getpid()}"
    path = Path(make_run_dir(name, "", {"HOME": home.format(no_dir)}))
    path.rmdir()

    assert path == Path(f"/var/tmp/dsup-{os.getuid()}") / name  # noqa: S108
    assert capsys.readouterr().err.count("\n") == (home == "{}")


@pytest.mark.root
def test_a_default_place_of_another_user_is_not_used(tmp_path, capsys):
    """A directory that somebody else owns may be a trap."""
    state = tmp_path / "state"
    (state / "runs").mkdir(parents=True)
    os.chown(state / "runs", 1234, -1)

    path = make_run_dir(
        "r1", "", {"STATE_DIRECTORY": str(state), "HOME": str(tmp_path)}
    )

    assert path.startswith(str(tmp_path / ".local"))
    assert "it belongs to another user" in capsys.readouterr().err


def test_no_place_at_all_is_refused(tmp_path, capsys):
    """When no default place works either, the user is asked for one."""
    with pytest.raises(SpecError, match="anywhere"):
        make_run_dir("no/such", "", {"HOME": str(tmp_path)})

    assert capsys.readouterr().err.count("dsup: cannot keep runs in ") == 2
