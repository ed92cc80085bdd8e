"""Where it is looked when an attempt has failed."""

import os
from types import SimpleNamespace
from typing import cast

import pytest

from dsup import places
from dsup.core.job import Job


def job(**fields):
    """Return a job that has what is asked here."""
    known = {
        "run_dir": "/runs/r1",
        "checkpoint_dir": "",
        "rank_logs": True,
        "spec": SimpleNamespace(world_size=2),
    }
    return cast("Job", SimpleNamespace(**known | fields))


def test_every_file_system_that_a_run_depends_on_is_looked_at():
    """A rank may write where it was started, too; what is not set is left out."""
    assert places.file_systems(job(checkpoint_dir="/ckpt"), "/tmp/d1") == {  # noqa: S108
        "run directory": "/runs/r1",
        "checkpoints": "/ckpt",
        "working directory": os.getcwd(),
        "TMPDIR": "/tmp/d1",  # noqa: S108
        "/dev/shm": "/dev/shm",  # noqa: S108
    }
    assert "checkpoints" not in places.file_systems(job(), "")
    assert "TMPDIR" not in places.file_systems(job(), "")


def test_a_working_directory_that_was_removed_is_left_out(tmp_path, monkeypatch):
    """It has no path any more."""
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()

    assert "working directory" not in places.file_systems(job(), "")


@pytest.mark.parametrize(("rank_logs", "count"), [(True, 2), (False, 0)])
def test_error_files_are_where_rank_logs_are(rank_logs, count):
    """Without rank logs there are none."""
    found = places.error_files(job(rank_logs=rank_logs), 3)

    assert len(found) == count
    assert all(path.startswith("/runs/r1/attempt_3/") for path in found.values())
