"""What launchers cannot do from outside, for training code: supervised by dsup or not.

Everything works under torchrun, srun and plain ``python`` too. Importing the package
costs next to nothing: each name is looked up in its module at its first use.
"""

TYPE_CHECKING = False  # importing typing would be the larger half of this import
if TYPE_CHECKING:
    from dsup_runtime import errors
    from dsup_runtime.agreement import agree
    from dsup_runtime.barriers import barrier
    from dsup_runtime.checkpoints.directory import CheckpointDir
    from dsup_runtime.deferred import (
        defer,
        has_deferred_error,
        raise_if_deferred_error,
        try_or_defer,
    )
    from dsup_runtime.faults import fault_point
    from dsup_runtime.heartbeat import beat, phase
    from dsup_runtime.lifecycle.outcome import Outcome
    from dsup_runtime.lifecycle.reporting import Reporter
    from dsup_runtime.lifecycle.run import run
    from dsup_runtime.numerics.snapshot import Snapshot
    from dsup_runtime.numerics.step_guard import StepGuard
    from dsup_runtime.progress import Progress
    from dsup_runtime.stop import request_stop, should_stop
    from dsup_runtime.worker_info import info

__all__ = [
    "CheckpointDir",
    "Outcome",
    "Progress",
    "Reporter",
    "Snapshot",
    "StepGuard",
    "agree",
    "barrier",
    "beat",
    "defer",
    "errors",
    "fault_point",
    "has_deferred_error",
    "info",
    "phase",
    "raise_if_deferred_error",
    "request_stop",
    "run",
    "should_stop",
    "try_or_defer",
]

_HOMES = {
    "CheckpointDir": "checkpoints.directory",
    "Outcome": "lifecycle.outcome",
    "Progress": "progress",
    "Reporter": "lifecycle.reporting",
    "Snapshot": "numerics.snapshot",
    "StepGuard": "numerics.step_guard",
    "agree": "agreement",
    "barrier": "barriers",
    "beat": "heartbeat",
    "defer": "deferred",
    "fault_point": "faults",
    "has_deferred_error": "deferred",
    "info": "worker_info",
    "phase": "heartbeat",
    "raise_if_deferred_error": "deferred",
    "request_stop": "stop",
    "run": "lifecycle.run",
    "should_stop": "stop",
    "try_or_defer": "deferred",
}


def __getattr__(name: str) -> object:
    """Import the module that owns a public name, and keep what it owns here."""
    if name not in __all__:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    from importlib import import_module

    home = import_module(f"{__name__}.{_HOMES.get(name, name)}")
    value = globals()[name] = getattr(home, name) if name in _HOMES else home
    return value


def __dir__() -> list[str]:
    """List the public names although most are not there yet."""
    return sorted({*globals(), *__all__})
