"""An outcome put down for whoever comes after: the agent, its files, torch's launcher.

No file is made where dsup does not supervise, except torch's own error file, for which
torch's launcher asks by a variable.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import traceback
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from dsup_runtime import contract, disk, notes
from dsup_runtime.error_text import describe
from dsup_runtime.lifecycle.outcome import STRENGTH

if TYPE_CHECKING:
    from dsup_runtime.lifecycle.outcome import Outcome
    from dsup_runtime.worker_info import Info

_FILE_MAX_BYTES: Final = 65_536


def tell(outcome: Outcome) -> None:
    """Tell the agent, if there is one."""
    notes.send("outcome", **outcome._asdict())


def put_down(outcome: Outcome, error: BaseException | None, info: Info) -> None:
    """Write the files that belong to an outcome on this rank.

    Args:
        outcome: how the run ended.
        error: what ended this rank; None where nothing was raised.
        info: who this rank is.

    Raises:
        OSError: if one cannot be written.
    """
    torchs = contract.variable("TORCHELASTIC_ERROR_FILE")
    if torchs and outcome.status == "FAILED" and isinstance(error, Exception):
        write_error_file(error, torchs)
    run_dir = contract.variable(contract.RUN_DIR)
    if run_dir and info.supervised and info.is_main:
        write(outcome, contract.attempt_dir(run_dir, info.attempt))


def write(outcome: Outcome, directory: str) -> bool:
    """Write ``outcome.json`` in one step, unless one at least as strong is there.

    Args:
        outcome: what to write.
        directory: the attempt's.

    Returns:
        Whether it was written.

    Raises:
        OSError: if it cannot be.
    """
    path = os.path.join(directory, contract.OUTCOME_FILE)
    if STRENGTH.index(outcome.status) <= _strength_of(path):
        return False
    _replace(path, {"v": 1, **outcome._asdict()})
    return True


def write_error_file(error: BaseException, path: str) -> bool:
    """Write what torch's ``record`` would, unless a file is there already.

    Args:
        error: what ends this rank.
        path: the value of TORCHELASTIC_ERROR_FILE.

    Returns:
        Whether it was written.

    Raises:
        OSError: if it cannot be.

    Source: torch/distributed/elastic/multiprocessing/errors/error_handler.py.
    """
    if os.path.lexists(path):
        return False
    extra = {
        "py_callstack": "".join(traceback.format_exception(error)),
        "timestamp": str(int(datetime.now(UTC).timestamp())),
    }
    _replace(path, {"message": {"message": describe(error), "extraInfo": extra}})
    return True


def _strength_of(path: str) -> int:
    """Return how strong the outcome in a file is; -1 if there is none."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(fd, "rb") as file:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                return -1
            told = json.loads(file.read(_FILE_MAX_BYTES))
        return STRENGTH.index(told["status"])
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return -1


def _replace(path: str, fields: dict[str, Any]) -> None:
    beside = f"{path}.{os.urandom(4).hex()}"
    try:
        disk.write_new(beside, json.dumps(fields).encode())
        os.replace(beside, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(beside)
        raise
