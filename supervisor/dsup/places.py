"""Where the things of an attempt are that are looked at when it has failed."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from dsup_runtime import contract

if TYPE_CHECKING:
    from dsup.core.job import Job

_SHM: Final = "/dev/shm"  # noqa: S108 (its space is looked at)


def file_systems(job: Job, tmp_dir: str) -> dict[str, str]:
    """Return a path of each file system that a run depends on, the first first.

    Args:
        job: what to do.
        tmp_dir: TMPDIR of the attempt; empty for none.
    """
    places = {
        "run directory": job.run_dir,
        "checkpoints": job.checkpoint_dir,
        "working directory": _working_directory(),
        "TMPDIR": tmp_dir,
        "/dev/shm": _SHM,  # noqa: S108 (a name)
    }
    return {name: path for name, path in places.items() if path}


def error_files(job: Job, attempt: int) -> dict[int, str]:
    """Return where each rank of an attempt writes error.json; empty if none does."""
    ranks = range(job.spec.world_size) if job.rank_logs else ()
    return {rank: error_file(job.run_dir, attempt, rank) for rank in ranks}


def error_file(run_dir: str, attempt: int, rank: int) -> str:
    """Return where a rank writes error.json."""
    return f"{contract.rank_dir(run_dir, attempt, rank)}/{contract.ERROR_FILE}"


def _working_directory() -> str:
    """Return where dsup and its ranks were started; empty if that was removed."""
    try:
        return os.getcwd()
    except OSError:
        return ""
