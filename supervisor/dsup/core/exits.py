"""Causes and exit codes: one table that says what each way to fail is worth.

Below 128 an exit code is permanent (trying again gives the same), from 128 on it is
worth another try; schedulers with an exit-code policy can rely on it. Signal numbers
are Linux's, written as numbers because this module is pure and imports no ``signal``.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple, TypeAlias

OK: Final = 0
REPEATED: Final = 1
WRONG_CALL: Final = 2
BUG: Final = 70
CANNOT_EXECUTE: Final = 126
NOT_FOUND: Final = 127
SIGNALLED: Final = 128
"""Added to a signal's number; from here on another try is worth it."""

NODE_UNFIT: Final = 193
HANG: Final = 194
LOST: Final = 195

SIGHUP: Final = 1
SIGINT: Final = 2
SIGQUIT: Final = 3
SIGILL: Final = 4
SIGBUS: Final = 7
SIGFPE: Final = 8
SIGKILL: Final = 9
SIGUSR1: Final = 10
SIGSEGV: Final = 11
SIGUSR2: Final = 12
SIGTERM: Final = 15

DECISIVE_SIGNALS: Final = frozenset({SIGKILL, SIGSEGV, SIGBUS, SIGILL, SIGFPE})
"""A rank that died of one of these was not taken along by another rank's end."""

_NAMES: Final = (  # noqa: SIM905 (a literal takes 31 lines)
    "HUP INT QUIT ILL TRAP ABRT BUS FPE KILL USR1 SEGV USR2 PIPE ALRM TERM STKFLT CHLD "
    "CONT STOP TSTP TTIN TTOU URG XCPU XFSZ VTALRM PROF WINCH IO PWR SYS"
).split()

Family: TypeAlias = Literal["user", "stop", "infrastructure"]


class Cause(NamedTuple):
    """What a cause of failure means for the run.

    Attributes:
        family: ``user`` causes come back when tried again, ``infrastructure`` causes
            need not, ``stop`` is somebody's wish.
        code: exit code when the run is given up; for user causes only where the first
            rank's own code cannot be used, and where ``by_signal`` is set only if the
            first rank did not die of a signal.
        by_signal: a first rank that died of signal n gives 128+n.
        meaning: one line for people.
    """

    family: Family
    code: int
    by_signal: bool
    meaning: str


def _user(meaning: str) -> Cause:
    return Cause("user", 1, by_signal=False, meaning=meaning)


def _stop(code: int, meaning: str) -> Cause:
    return Cause("stop", code, by_signal=False, meaning=meaning)


def _node(meaning: str) -> Cause:
    return Cause("infrastructure", NODE_UNFIT, by_signal=False, meaning=meaning)


def _lost(meaning: str) -> Cause:
    return Cause("infrastructure", LOST, by_signal=False, meaning=meaning)


def _death(code: int, meaning: str) -> Cause:
    return Cause("infrastructure", code, by_signal=True, meaning=meaning)


CAUSES: Final[dict[str, Cause]] = {
    "python_exception": _user("a rank ended with an exit code of its own"),
    "import_error": _user("a module could not be imported"),
    "config_error": _user("the script refused its arguments or configuration"),
    "checkpoint_error": _user("a checkpoint could not be loaded or does not fit"),
    "cuda_oom": _user("the GPU had no memory left for the script"),
    "device_assert": _user("a device-side assertion failed"),
    "collective_mismatch": _user("ranks called different collectives"),
    "early_exit": _user("a rank ended with 0 while others still needed it"),
    "numeric_divergence": _user(
        "numbers diverged: a loss or a gradient is nan, or grew without end"
    ),
    "disk_full": _user("a file system or quota is full"),
    "spawn_error": _user("the program could not be started"),
    "preempted": _stop(143, "the scheduler or an operator ended the run"),
    "time_limit": _stop(143, "the time limit of the run was reached"),
    "user_interrupt": _stop(130, "somebody stopped the run by hand"),
    "host_oom": _death(SIGNALLED + SIGKILL, "the kernel killed a process for memory"),
    "segfault": _death(SIGNALLED + SIGSEGV, "a rank accessed memory it must not"),
    "sigbus": _death(SIGNALLED + SIGBUS, "a mapped file or shared memory vanished"),
    "abort": _death(134, "a library gave up in a rank"),
    "killed": _death(
        SIGNALLED + SIGKILL, "a fatal signal of unknown sender ended a rank"
    ),
    "agent_killed": _death(SIGNALLED + SIGKILL, "dsup's agent was killed"),
    "cuda_error": _death(NODE_UNFIT, "CUDA reported an error"),
    "dataloader_worker": _death(NODE_UNFIT, "a DataLoader worker died"),
    "unknown": _death(LOST, "the evidence names no cause"),
    "pids_limit": _node("no process or thread could be created"),
    "gpu_hardware": _node("a GPU reported a fault"),
    "unkillable": _node("a process does not end even after SIGKILL"),
    "node_rebooted": _node("the node was rebooted during the run"),
    "hang": Cause("infrastructure", HANG, by_signal=False, meaning="a rank hangs"),
    "nccl_network": _lost("the network between ranks failed"),
    "storage_io": _lost("storage failed or did not answer"),
    "port_in_use": _lost("a port is held by another process"),
    "store_lost": _lost("the key-value store of the ranks went away"),
    "node_lost": _lost("a node of the run went away"),
}


def signal_name(signum: int) -> str:
    """Return ``SIGTERM`` for 15; a real-time signal is ``signal 40``."""
    known = 1 <= signum <= len(_NAMES)
    return f"SIG{_NAMES[signum - 1]}" if known else f"signal {signum}"


def is_decisive(status: int) -> bool:
    """Return whether a death of this status can not be another rank's fault."""
    return -status in DECISIVE_SIGNALS


def provisional_cause(status: int) -> str:
    """Return the cause that a wait status alone supports, until a judge answers."""
    return "killed" if status < 0 else "python_exception"


def exit_code(cause: str, status: int) -> int:
    """Return the exit code of a run that is given up.

    Args:
        cause: a key of ``CAUSES``.
        status: the first rank's exit code, or minus its signal number.
    """
    row = CAUSES[cause]
    if row.family == "user":
        usable = 0 < status < SIGNALLED and status != BUG
        return status if usable else row.code
    if row.by_signal and status < 0:
        return SIGNALLED - status
    return row.code


def heeds_stop(status: int) -> bool:
    """Return whether a rank that was asked to stop ended as one does."""
    return status in {OK, SIGNALLED + SIGTERM, -SIGTERM}


def stop_cause(signum: int) -> str:
    """Return the cause of a run's end that was stopped by this signal."""
    return "user_interrupt" if signum in {SIGINT, SIGQUIT} else "preempted"


def stop_code(signum: int) -> int:
    """Return the exit code of a run that was stopped by this signal."""
    return SIGNALLED + signum
