"""Who this worker is, from torchrun's variables and those that dsup adds.

The module is not named ``info``: importing it would put the module in the place of
``dsup_runtime.info``, the function.
"""

from __future__ import annotations

import sys
from typing import NamedTuple

from dsup_runtime import contract, heartbeat

GRACE_DEFAULT_S = 25.0
"""dsup's own default; torchrun kills 30 s after its signal."""

_SECONDS_MAX = 1e9  # about 30 years; more than that some clocks cannot count


class WorkerEnvironmentError(ValueError):
    """A variable that names this worker's place cannot be understood."""


class Info(NamedTuple):
    """This worker's place in the run, as its launcher gave it.

    Attributes:
        rank: global rank, 0 <= rank < world_size.
        world_size: ranks in the run.
        local_rank: index of this worker on its node, from 0.
        is_main: whether this is rank 0.
        run_id: the launcher's name for the run; None without a launcher.
        attempt: which life of the worker group this is, from 0.
        supervised: whether dsup watches this process: it has a slot of its own in
            the heartbeat page. False in helpers, such as a DataLoader's workers.
        grace_s: time from a request to stop until the kill, seconds.
        comm_timeout_s: ``timeout`` for ``init_process_group``, seconds; None leaves
            torch's own.
        resume_from: newest valid checkpoint; None to start afresh.
    """

    rank: int
    world_size: int
    local_rank: int
    is_main: bool
    run_id: str | None
    attempt: int
    supervised: bool
    grace_s: float
    comm_timeout_s: float | None
    resume_from: str | None


def info() -> Info:
    """Return this worker's place in the run; rank 0 of 1 without a launcher.

    Raises:
        WorkerEnvironmentError: if a variable holds what no launcher writes there.
    """
    rank, world_size = read_count("RANK", 0), read_count("WORLD_SIZE", 1)
    if rank >= world_size:
        why = f"is no rank where WORLD_SIZE is {world_size}"
        raise _unreadable("RANK", str(rank), why)
    grace_s = _read_seconds(contract.GRACE_S)
    return Info(
        rank=rank,
        world_size=world_size,
        local_rank=read_count("LOCAL_RANK", 0),
        is_main=rank == 0,
        run_id=contract.variable("TORCHELASTIC_RUN_ID") or None,
        attempt=read_attempt(),
        supervised=heartbeat.supervised(),
        grace_s=GRACE_DEFAULT_S if grace_s is None else grace_s,
        comm_timeout_s=_read_seconds(contract.COMM_TIMEOUT_S),
        resume_from=contract.variable(contract.RESUME_FROM) or None,
    )


def read_attempt() -> int:
    """Return which life of the worker group this is, from 0."""
    return read_count(contract.ATTEMPT, read_count("TORCHELASTIC_RESTART_COUNT", 0))


def is_loader_worker() -> bool:
    """Return whether this process is a DataLoader's worker, forked or spawned."""
    data = sys.modules.get("torch.utils.data")
    return data is not None and data.get_worker_info() is not None


def read_count(name: str, default: int) -> int:
    """Return a variable that holds a whole number from 0.

    Args:
        name: the variable.
        default: what it means to be unset or empty.

    Raises:
        WorkerEnvironmentError: if it holds anything else.
    """
    value = contract.variable(name)
    if not value:
        return default
    try:
        count = int(value)
    except ValueError:
        raise _unreadable(name, value, "is not a number") from None
    if count < 0:
        raise _unreadable(name, value, "is below 0")
    return count


def _read_seconds(name: str) -> float | None:
    value = contract.variable(name)
    if not value:
        return None
    try:
        seconds = float(value)
    except ValueError:
        raise _unreadable(name, value, "is not a number") from None
    if not 0 <= seconds <= _SECONDS_MAX:  # also refuses nan
        raise _unreadable(name, value, "is not a length of time in seconds")
    return seconds


def _unreadable(name: str, value: str, why: str) -> WorkerEnvironmentError:
    return WorkerEnvironmentError(
        f"cannot read {name}, because {value[:40]!r} {why} (unset it, or start this"
        " script with dsup or torchrun, which set it)"
    )
