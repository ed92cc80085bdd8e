"""Faults on demand, so that a test can break one rank at one step.

``DSUP_FAULT=KIND:RANK@STEP`` arms one fault for one run: it happens once, in attempt 0,
in the global rank RANK, at the first ``fault_point`` that names the step STEP.

    kill    SIGKILL to itself          stop    SIGSTOP to itself
    raise   RuntimeError               enospc  OSError, no space left on device
    segv    a read of address 0        oom     the kernel's out-of-memory kill
    exit    sys.exit(3)                exit0   sys.exit(0)
    sleep   sleeps for an hour         hang    the main thread waits for ever
    nan     ``fault_point`` returns "nan": the caller spoils its own numbers
"""

from __future__ import annotations

import errno
import os
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING, NamedTuple

from dsup_runtime import contract, worker_info

if TYPE_CHECKING:
    from collections.abc import Callable

EXIT_CODE = 3
"""Exit code of kind exit: no shell, no signal and no part of dsup uses it."""

_SLEEP_S = 3600


class FaultError(ValueError):
    """DSUP_FAULT does not name a fault."""


class Fault(NamedTuple):
    """One fault: what happens, in which global rank, at which step."""

    kind: str
    rank: int
    step: int


def parse_fault(value: str) -> Fault:
    """Return the fault that a value of ``DSUP_FAULT`` names.

    Raises:
        FaultError: if the value is not KIND:RANK@STEP, or there is no such kind.
    """
    kind, _, place = value.partition(":")
    rank, _, step = place.partition("@")
    if kind not in _ACTIONS:
        raise _no_fault(value, f"{kind[:40]!r} is no kind of fault")
    try:
        fault = Fault(kind, int(rank), int(step))
    except ValueError:
        raise _no_fault(value, "rank and step are not two numbers") from None
    if fault.rank < 0 or fault.step < 0:
        raise _no_fault(value, "ranks and steps count from 0")
    return fault


def fault_point(name: str, step: int | None = None) -> str | None:
    """Let the fault happen that DSUP_FAULT asks for here, if any.

    Args:
        name: where the caller is; it appears in the errors that are raised.
        step: the caller's step; None never meets a fault.

    Returns:
        "nan" if the caller is to make its loss NaN now, else None.

    Raises:
        FaultError: at the first call, in every rank, if DSUP_FAULT names no fault.
        RuntimeError: kind raise; also kind oom where it is refused.
        OSError: kind enospc.
        SystemExit: kinds exit and exit0.
    """
    fault = _plan.fault if _plan.resolved else _plan.resolve()
    if fault is None or step != fault.step:
        return None
    _plan.fault = None
    return _ACTIONS[fault.kind](name)


class _Plan:
    """The fault that waits for this process; None when there is none any more."""

    __slots__ = ("fault", "resolved")

    def __init__(self) -> None:
        self.fault: Fault | None = None
        self.resolved = False

    def resolve(self) -> Fault | None:
        """Read the environment, once."""
        value = contract.variable(contract.FAULT)
        if value:
            fault = parse_fault(value)
            if worker_info.read_count("RANK", 0) == fault.rank:
                self._arm(fault)
        self.resolved = True
        return self.fault

    def _arm(self, fault: Fault) -> None:
        if worker_info.read_attempt() == 0:
            self.fault = fault
        elif fault.kind == "oom":
            _remove_dead_groups()


_plan = _Plan()


def _no_fault(value: str, why: str) -> FaultError:
    return FaultError(
        f"cannot inject the fault {contract.FAULT}={value[:80]!r}, because {why}"
        f" (write KIND:RANK@STEP, KIND one of {', '.join(_ACTIONS)})"
    )


def _remove_dead_groups() -> None:
    from dsup_runtime import oom

    oom.remove_dead_groups()


def _kill(_name: str) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _stop(_name: str) -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def _raise(name: str) -> None:
    message = f"injected fault at {name!r}"
    raise RuntimeError(message)


def _segv(_name: str) -> None:
    import ctypes

    ctypes.string_at(0)


def _oom(_name: str) -> None:
    from dsup_runtime import oom

    oom.die()


def _exit(_name: str) -> None:
    sys.exit(EXIT_CODE)


def _exit0(_name: str) -> None:
    sys.exit(0)


def _sleep(_name: str) -> None:
    time.sleep(_SLEEP_S)


def _hang(_name: str) -> None:
    threading.Event().wait()


def _nan(_name: str) -> str:
    return "nan"


def _enospc(name: str) -> None:
    raise OSError(errno.ENOSPC, f"{os.strerror(errno.ENOSPC)} (injected at {name!r})")


_ACTIONS: dict[str, Callable[[str], str | None]] = {
    "kill": _kill,
    "stop": _stop,
    "raise": _raise,
    "segv": _segv,
    "oom": _oom,
    "exit": _exit,
    "exit0": _exit0,
    "sleep": _sleep,
    "hang": _hang,
    "nan": _nan,
    "enospc": _enospc,
}
