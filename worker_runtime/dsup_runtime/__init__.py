"""What launchers cannot do from outside, for training code: supervised by dsup or not.

Everything works under torchrun, srun and plain ``python`` too. Importing the package
costs next to nothing: each name is looked up in its module at its first use.
"""

TYPE_CHECKING = False  # importing typing would be the larger half of this import
if TYPE_CHECKING:
    from dsup_runtime.faults import fault_point
    from dsup_runtime.heartbeat import beat, phase
    from dsup_runtime.worker_info import info

__all__ = ["beat", "fault_point", "info", "phase"]

_HOMES = {
    "beat": "dsup_runtime.heartbeat",
    "fault_point": "dsup_runtime.faults",
    "info": "dsup_runtime.worker_info",
    "phase": "dsup_runtime.heartbeat",
}


def __getattr__(name: str) -> object:
    """Import the module that owns a public name, and keep what it owns here."""
    if name not in _HOMES:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    from importlib import import_module

    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    """List the public names although most are not there yet."""
    return sorted({*globals(), *__all__})
