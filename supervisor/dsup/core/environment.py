"""The environment of a rank: torchrun's contract name for name, plus dsup's own."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final, NamedTuple

from dsup_runtime import contract

MASTER_ADDR: Final = "127.0.0.1"
SIGNALS: Final = "SIGTERM,SIGINT,SIGHUP,SIGQUIT"
FLIGHT_RECORDER_ENTRIES: Final = "2000"
FLIGHT_RECORDER_PIPE: Final = "TORCH_NCCL_DEBUG_INFO_PIPE_FILE"

_RENAMED: Final = {
    "TORCH_NCCL_TRACE_BUFFER_SIZE": "TORCH_FR_BUFFER_SIZE",
    "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": "TORCH_FR_DUMP_TEMP_FILE",
}
"""torch reads both and lets the new name win, so a user's old name needs respect."""

_SERVICE_PREFIXES: Final = ("WATCHDOG_", "LISTEN_")
_SERVICE_NAMES: Final = frozenset({"NOTIFY_SOCKET", "INVOCATION_ID"})
_OURS: Final = frozenset({contract.HEARTBEAT_TOKEN, contract.STACKS})
"""Of a run of dsup's around this one: none of its secrets is a rank's business."""


class Choices(NamedTuple):
    """What a user may choose of torchrun's variables.

    Attributes:
        role: ROLE_NAME.
        master_addr: MASTER_ADDR.
        signals: TORCHELASTIC_SIGNALS_TO_HANDLE.
        virtual_local_rank: every rank is told that it is the first, and sees one GPU.
    """

    role: str = "default"
    master_addr: str = MASTER_ADDR
    signals: str = SIGNALS
    virtual_local_rank: bool = False


class Shared(NamedTuple):
    """What all ranks of one attempt have in common.

    Attributes:
        run_id: TORCHELASTIC_RUN_ID.
        run_dir: the run directory, absolute.
        attempt: from 0.
        world_size: ranks of the run, all on this node.
        max_restarts: the restart budget in force.
        port: MASTER_PORT.
        agent_store: whether dsup hosts the key-value store (else rank 0 does).
        tmp_dir: TMPDIR of the attempt.
        inductor_cache: torch's compile cache without that TMPDIR.
        heartbeat: DSUP_HEARTBEAT, but for the rank's slot.
        notes_fd: number of the notes' socket in the rank.
        agent_pid: for the bootstrap.
        resume_from: newest valid checkpoint; empty if there is none.
        grace_s: from the first signal to SIGKILL, seconds.
        comm_timeout_s: time-out of collectives, seconds; None leaves torch's.
        error_files: whether ranks may write error.json.
        faulthandler: a crash of Python prints where it was.
        choices: what the user chose.
        heartbeat_token: proves a rank to be one; empty where nothing has to.
        stacks_fd: number of the memory file for stacks in the rank.
    """

    run_id: str
    run_dir: str
    attempt: int
    world_size: int
    max_restarts: int
    port: int
    agent_store: bool
    tmp_dir: str
    inductor_cache: str
    heartbeat: str
    notes_fd: int
    agent_pid: int
    resume_from: str
    grace_s: float
    comm_timeout_s: float | None
    error_files: bool
    faulthandler: bool = True
    choices: Choices = Choices()
    heartbeat_token: str = ""
    stacks_fd: int = 5


def for_rank(base: Mapping[str, str], shared: Shared, rank: int) -> dict[str, str]:
    """Return the whole environment of one rank.

    Args:
        base: the environment dsup was started with.
        shared: what all ranks share.
        rank: global rank, which is the local rank on one node.
    """
    kept = {
        name: value
        for name, value in base.items()
        if name
        and name not in _SERVICE_NAMES | _OURS
        and not name.startswith(_SERVICE_PREFIXES)
    }
    unset = {**defaults(shared), **_pipe(shared, rank)}
    for old, new in _RENAMED.items():
        if old in kept:
            del unset[new]
    virtual = _one_gpu(base, rank) if shared.choices.virtual_local_rank else {}
    torchrun = {**_torchrun(shared, rank), **virtual}
    return {**unset, **kept, **torchrun, **_own(base, shared, rank)}


def visible_gpus(base: Mapping[str, str]) -> list[str] | None:
    """Return the GPUs that a list of the user's leaves visible; None without a list.

    HIP reads CUDA's variable too, and its own beside it.
    """
    listed = base.get("CUDA_VISIBLE_DEVICES", base.get("HIP_VISIBLE_DEVICES"))
    return None if listed is None else [word.strip() for word in listed.split(",")]


def defaults(shared: Shared) -> dict[str, str]:
    """Variables that the user's own setting overrides."""
    dumps = contract.attempt_dir(shared.run_dir, shared.attempt)
    found = {
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
        "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
        "TORCH_FR_BUFFER_SIZE": FLIGHT_RECORDER_ENTRIES,
        "TORCH_FR_DUMP_TEMP_FILE": f"{dumps}/nccl_trace_rank_",
        "TORCHINDUCTOR_CACHE_DIR": shared.inductor_cache,
    }
    if shared.world_size > 1:
        found["OMP_NUM_THREADS"] = "1"
    if shared.comm_timeout_s is not None:
        # torch reads an integer, and only as far as it is one.
        seconds = max(1, math.ceil(shared.comm_timeout_s))
        found["TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC"] = str(seconds)
    return found


def _pipe(shared: Shared, rank: int) -> dict[str, str]:
    """Return where torch makes the FIFO by which its flight recorder is asked.

    Each rank has a name of its own: whoever starts a group of one in every rank has
    rank 0 in all of them, and torch ends a process that finds its FIFO there.
    """
    return {FLIGHT_RECORDER_PIPE: f"{shared.tmp_dir}/nccl_pipe_{rank}_"}


def _one_gpu(base: Mapping[str, str], rank: int) -> dict[str, str]:
    """Return the variables of a rank that finds its own GPU, and no other, at 0."""
    # As torchrun does, of CUDA's variable alone: where HIP's is set as well, CUDA's
    # counts within it.
    listed = base.get("CUDA_VISIBLE_DEVICES")
    mine = str(rank) if listed is None else listed.split(",")[rank].strip()
    return {"LOCAL_RANK": "0", "CUDA_VISIBLE_DEVICES": mine}


def _torchrun(shared: Shared, rank: int) -> dict[str, str]:
    world_size = str(shared.world_size)
    logs = contract.rank_dir(shared.run_dir, shared.attempt, rank)
    error_file = f"{logs}/{contract.ERROR_FILE}" if shared.error_files else ""
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": world_size,
        "LOCAL_WORLD_SIZE": world_size,
        "GROUP_RANK": "0",
        "GROUP_WORLD_SIZE": "1",
        "ROLE_NAME": shared.choices.role,
        "ROLE_RANK": str(rank),
        "ROLE_WORLD_SIZE": world_size,
        "MASTER_ADDR": shared.choices.master_addr,
        "MASTER_PORT": str(shared.port),
        "TORCHELASTIC_RESTART_COUNT": str(shared.attempt),
        "TORCHELASTIC_MAX_RESTARTS": str(shared.max_restarts),
        "TORCHELASTIC_RUN_ID": shared.run_id,
        "TORCHELASTIC_USE_AGENT_STORE": str(shared.agent_store),
        "TORCHELASTIC_ERROR_FILE": error_file,
        "TORCHELASTIC_SIGNALS_TO_HANDLE": shared.choices.signals,
    }


def _own(base: Mapping[str, str], shared: Shared, rank: int) -> dict[str, str]:
    path = base.get("PYTHONPATH", "")
    timeout_s = shared.comm_timeout_s
    token = shared.heartbeat_token
    return {
        **({contract.HEARTBEAT_TOKEN: token} if token else {}),
        contract.RUN_DIR: shared.run_dir,
        contract.ATTEMPT: str(shared.attempt),
        contract.HEARTBEAT: f"{shared.heartbeat}#{rank}",
        contract.NOTES: contract.format_notes(shared.notes_fd),
        **_stacks(shared),
        contract.RESUME_FROM: shared.resume_from,
        contract.GRACE_S: _seconds(shared.grace_s),
        contract.COMM_TIMEOUT_S: "" if timeout_s is None else _seconds(timeout_s),
        contract.BOOTSTRAP: _bootstrap(shared),
        "TMPDIR": shared.tmp_dir,
        "PYTHONPATH": f"{contract.BOOTSTRAP_DIR}:{path}"
        if path
        else contract.BOOTSTRAP_DIR,
    }


def _stacks(shared: Shared) -> dict[str, str]:
    """Return where stacks are written to: whoever wants no fault handler wants none."""
    if not shared.faulthandler:
        return {}
    return {contract.STACKS: contract.format_stacks(shared.stacks_fd)}


def _bootstrap(shared: Shared) -> str:
    wish = "" if shared.faulthandler else ":no-faulthandler"
    return f"{shared.agent_pid}{wish}"


def _seconds(value: float) -> str:
    return str(int(value)) if value.is_integer() else repr(value)
