"""What to do about each cause: a word for programs, a line for people."""

from __future__ import annotations

from typing import Final

from dsup.attribution.wording import CAST_OFF, WAS_SENT
from dsup.core.verdict import Advice

ADVICE: Final[dict[str, Advice]] = {
    "python_exception": Advice("fix_script", "read the traceback and fix the script"),
    "import_error": Advice(
        "fix_environment", "check the interpreter and packages: dsup launch --dry-run"
    ),
    "config_error": Advice(
        "fix_arguments", "fix the arguments or the configuration of the script"
    ),
    "checkpoint_error": Advice(
        "move_checkpoint", "move the bad checkpoint aside, or fix the model to fit it"
    ),
    "cuda_oom": Advice(
        "use_less_gpu_memory",
        "use a smaller batch, more sharding or activation checkpointing",
    ),
    "device_assert": Advice(
        "find_index", "look for an index out of range: CUDA_LAUNCH_BLOCKING=1 names it"
    ),
    "collective_mismatch": Advice(
        "fix_script", "look for a branch around a collective that only some ranks take"
    ),
    "early_exit": Advice(
        "fix_script", "make every rank run the same number of steps; rank 0 leaves last"
    ),
    "numeric_divergence": Advice(
        "inspect_data", "inspect the data of the last steps; lower the learning rate"
    ),
    "disk_full": Advice(
        "free_space", "free space where checkpoints and the run directory are"
    ),
    "spawn_error": Advice(
        "fix_program",
        "check the program's path and permissions, or raise the limit that is named",
    ),
    "host_oom": Advice(
        "use_less_memory",
        "find what grows in memory; fewer DataLoader workers, or a higher limit",
    ),
    "segfault": Advice(
        "inspect_stack", "read the stacks in the rank's log; suspect native extensions"
    ),
    "sigbus": Advice(
        "check_shm", "check df /dev/shm and the data set's storage; raise the shm size"
    ),
    "abort": Advice("inspect_log", "read why the library gave up in the rank's log"),
    "killed": Advice(
        "find_sender",
        "find the sender: a user-space OOM killer (journalctl -u systemd-oomd), the "
        "scheduler, a clean-up job, a colleague",
    ),
    "cuda_error": Advice(
        "check_gpu",
        "look for an Xid in the kernel log; CUDA_LAUNCH_BLOCKING=1 names it",
    ),
    "gpu_hardware": Advice("drain_node", "drain the node and have the GPU checked"),
    "dataloader_worker": Advice(
        "inspect_loader",
        "check memory limits, /dev/shm and the decoder of the worker's data",
    ),
    "pids_limit": Advice(
        "use_fewer_threads", "use fewer workers and threads, or raise pids.max"
    ),
    "hang": Advice(
        "find_wait",
        "compare the ranks' stacks: who is not where the others wait, and why",
    ),
    "nccl_network": Advice(
        "check_network", "check links, switches and firewalls between the ranks"
    ),
    "storage_io": Advice("check_storage", "check the mount and its servers"),
    "port_in_use": Advice(
        "free_port", "leave --master-port out: every attempt gets a fresh port then"
    ),
    "store_lost": Advice(
        "keep_store", "let rank 0 leave last, or start with --store agent"
    ),
    "unkillable": Advice(
        "reboot_node", "find what it waits for; the node may need a boot"
    ),
}
"""Causes without an entry leave nothing to do, or nothing that dsup knows of."""


_BY_RULE: Final[dict[str, Advice]] = {
    "memory_broke": Advice(
        "drain_node", "drain the node and have the memory module replaced"
    ),
    "program_faulted": Advice(
        "check_program",
        "debug the program: compute-sanitizer, or CUDA_LAUNCH_BLOCKING=1; suspect the "
        "GPU only if it comes back there in another job",
    ),
    "froze": Advice(
        "find_sender", "find who stopped it: a shell's ^Z, a debugger, a batch system"
    ),
    "slept": Advice(
        "check_storage",
        "check what it waits for in the kernel: a mount, its server, a driver",
    ),
    "came_alone": Advice(
        "fix_script", "look for a collective in a branch that only this rank takes"
    ),
    "nobody_is_missing": Advice(
        "check_network",
        "check how the ranks reach each other: interface (NCCL_SOCKET_IFNAME), "
        "firewall, peer-to-peer access (NCCL_P2P_DISABLE=1 to try without)",
    ),
    "limit_reached": Advice(
        "raise_limit", "raise that limit where dsup is started: ulimit -t, ulimit -f"
    ),
    "fabric_failed": Advice(
        "reset_fabric", "reset the NVSwitches and their GPUs together; drain the node"
    ),
}
"""Where what the rule saw tells more than the cause does."""

_SHM: Final = ("shared memory", "/dev/shm", "</torch_")  # noqa: S108 (words)
"""How torch and Python name shared memory that has no space left."""

_UNRAISED: Final = Advice(
    "find_exit", "find where the script ends with that code: no exception was seen"
)

_THREADS_LEFT: Final = Advice(
    "end_in_order",
    "delete models under DDP, then destroy the process group, before the script ends; "
    "at the end only the exit code is lost",
)
"""A thread of gloo's outlives its process group, or the interpreter."""

_SENT: Final = Advice(
    "find_sender",
    "find who may have sent that signal; without --no-faulthandler, Python says where "
    "the rank was",
)


def advice_for(cause: str, rule: str, summary: str = "") -> Advice | None:
    """Return what to do about a cause; None where nothing better than logs is known.

    Args:
        cause: a key of ``exits.CAUSES``.
        rule: the rule that named it: without words there is no traceback to be read.
        summary: the verdict's: it tells what it is that is full, and what is doubted.
    """
    if cause == "disk_full" and any(word in summary for word in _SHM):
        return ADVICE["sigbus"]
    if cause == "python_exception" and rule == "ended_without_words":
        return _UNRAISED
    if cause == "abort" and CAST_OFF in summary:
        return _THREADS_LEFT
    if rule == "crashed" and WAS_SENT in summary:
        return _SENT
    return _BY_RULE.get(rule) or ADVICE.get(cause)
