"""Which cause a statement of a log stands for."""

from __future__ import annotations

import re
from typing import Final

from dsup.core.exits import (
    SIGBUS,
    SIGFPE,
    SIGHUP,
    SIGILL,
    SIGINT,
    SIGKILL,
    SIGSEGV,
    SIGTERM,
)
from dsup.facts.errors import cause_of, communication
from dsup.facts.logs.said import Complaint, Error
from dsup.facts.xids import catalogued, is_device

CRASH_SIGNALS: Final = frozenset({SIGSEGV, SIGBUS, SIGILL, SIGFPE})

_ASKING: Final = frozenset({SIGHUP, SIGINT, SIGTERM})
"""Signals by which somebody asks a process to end: one that tells of it is a victim."""

_BY_SIGNAL: Final = {
    SIGSEGV: "segfault",
    SIGBUS: "sigbus",
    SIGKILL: "killed",
    SIGILL: "abort",
    SIGFPE: "abort",
}

_BY_KIND: Final = {
    "device": "cuda_error",
    "ecc": "gpu_hardware",
    "oom_device": "cuda_oom",
    "oom_host": "host_oom",
    "memlock": "nccl_network",
    "shm": "disk_full",
    "disk": "disk_full",
    "nic": "nccl_network",
    "completion": "nccl_network",
    "port": "port_in_use",
    "loader": "dataloader_worker",
    "glibc": "abort",
    "crash": "segfault",
    "nan": "numeric_divergence",
    "refusal": "config_error",
    "launch": "spawn_error",
    "killed": "killed",
}

_GENERAL: Final = frozenset({"python_exception", "cuda_error"})
"""Causes that a closer look at the words may make more exact."""

_WORDS: Final = (
    (
        "gpu_hardware",
        ("uncorrectable nvlink", "fallen off the bus", "determine the device handle"),
    ),
    # More processes than GPUs, or two of them on one: nobody's GPU is at fault.
    ("config_error", ("duplicate gpu detected", "invalid device ordinal")),
    # The rank that says so only reports; the one that it names may be as right.
    (
        "collective_mismatch",
        ("collective mismatch error", "expects same model across all ranks"),
    ),
    # torch's own files, in C++: errno's text and no type.
    ("storage_io", ("failed with input/output error", "flock: ")),
    # THC, in torch before 1.9, numbers the errors of CUDA.
    ("cuda_oom", ("cuda runtime error (2)", " error=2 : out of memory")),
    ("device_assert", ("cuda runtime error (59)", " error=59 : ")),
    ("cuda_error", ("cuda runtime error (", "thcudacheck fail")),
    # NCCL's "unhandled system error" hides a full /dev/shm.
    ("disk_full", ("shared memory segment", "failed to extend /dev/shm")),
    # ibv_* cannot lock memory, or set up a queue: the limit or the device, not a peer.
    (
        "nccl_network",
        (
            "ibv_",
            "no socket interface found",
            "has already checked in",
            "is neither af_inet",
        ),
    ),
    ("host_oom", ("[errno 12] cannot allocate memory",)),
    (
        "cuda_error",
        (
            "no cuda gpus are available",
            "cudagetdevicecount",
            "found no nvidia driver",
            "cuda driver initialization failed",
        ),
    ),
    (
        "numeric_divergence",
        (
            "loss scale already at minimum",
            "minimum loss scale reached",
            "found nan",
            "found inf",
            "loss is nan",
            "nan loss",
            "nan detected",
            "non-finite",
        ),
    ),
)
_WAITED: Final = (
    "task timeout occurred during task execution",
    "getting socket times out",
    "notify register times out",
)
"""What Ascend's HCCL says of a rank that waited for the others' data."""

_PROCESS_DIED: Final = frozenset(
    {"ActorDiedError", "RayActorError", "WorkerCrashedError"}
)
"""Ray's: its driver tells that a worker's process is gone, which said nothing."""

_INTERRUPTS: Final = frozenset({"KeyboardInterrupt", "SignalException"})
_HANDLER: Final = " in sigkill_handler"
_RELAYED: Final = (
    "is killed by signal: terminated",
    "childfailederror",
    "calledprocesserror",
)
_LOOKED_AT_CHARS: Final = 4096
_KERNEL_ASSERTION: Final = "assertion `"
_XID: Final = re.compile(r"Xid \([^)]{1,40}\): (\d{1,4})")
_FAILURES: Final = ("error", "fail", "no space", "insufficient", "cannot", "full")
"""Without one of these a line about shared memory tells of no failure at all."""

_HARMLESS_EVENTS: Final = (
    "client reregistration",
    "port active",
    "sm change",
    "lid change",
    "pkey change",
    "gid table change",
)
"""Asynchronous events of a network device that a subnet manager brings about."""

_MODULE: Final = "<module>"


def cause_of_error(error: Error) -> str:
    """Return the cause that an uncaught exception stands for.

    Where the log was cut before the exception's own line, its frames tell whether a
    module was being imported: the code of one module calls that of another only then.
    """
    kind = _inner(error.type)
    if kind.rpartition(".")[2] in _PROCESS_DIED:
        return "killed"
    told = cause_of(kind, error.text, error.causes)
    if told not in _GENERAL:
        return told
    words = cause_of_words(error.text)
    if words:
        return words
    if kind == "FloatingPointError":
        return "numeric_divergence"
    if not error.type and _importing(error):
        return "import_error"
    return told


def lost_by(type_name: str, text: str) -> str:
    """Return how an exception tells of a lost peer; empty where it does not.

    Args:
        type_name: as printed; empty for a line of a log.
        text: its text.
    """
    told = communication(type_name, text)
    return told or ("collective timed out" if _says(text, _WAITED) else "")


def cause_of_words(text: str) -> str:
    """Return the cause that words stand for; empty where they tell none."""
    told = cause_of("", text)
    if told not in _GENERAL:
        return told
    lowered = text[:_LOOKED_AT_CHARS].lower()
    known = (cause for cause, words in _WORDS if any(w in lowered for w in words))
    return next(known, "" if told == "python_exception" else told)


def cause_of_complaint(complaint: Complaint) -> str:
    """Return the cause that a telling line stands for; empty for none of its own."""
    kind = complaint.kind
    if kind == "crash" and complaint.signum is not None:
        asked = complaint.signum in _ASKING
        return "" if asked else cause_of_status(-complaint.signum)
    if kind == "ecc":
        return _of_xid(complaint.text)
    if kind == "nic" and _says(complaint.text, _HARMLESS_EVENTS):
        return ""
    if kind == "shm" and not _says(complaint.text, _FAILURES):
        return ""
    told = _BY_KIND.get(kind, "")
    if kind == "device" and _KERNEL_ASSERTION in complaint.text[:2048].lower():
        return "device_assert"
    if kind in {"device", "disk", "shm", "other"}:
        return cause_of_words(complaint.text) or told
    return told


def cause_of_status(status: int) -> str:
    """Return the cause that a deadly signal stands for by itself."""
    return _BY_SIGNAL.get(-status, "abort" if status < 0 else "python_exception")


def is_interrupt(error: Error) -> bool:
    """Return whether an exception is somebody's Ctrl-C, or a launcher's signal.

    DeepSpeed's runner, which starts the nodes, has a handler for both; what it raises
    while it runs is of its making.
    """
    handled = any(frame.endswith(_HANDLER) for frame in error.frames)
    return error.type.rpartition(".")[2] in _INTERRUPTS or (
        handled and any("/launcher/runner.py" in frame for frame in error.frames)
    )


def is_relayed(error: Error) -> bool:
    """Return whether an exception only tells of another process that was ended."""
    if error.type.endswith("CalledProcessError") and error.place.rank is not None:
        return False
    text = f"{error.type}: {error.text[:2048]}".lower()
    return any(words in text for words in _RELAYED)


def _of_xid(text: str) -> str:
    """Return the cause that a driver's line stands for.

    Most numbers are the GPU's; some, like 13 and 31, are what a program brings about,
    and some are for the record.
    """
    found = _XID.search(text[:_LOOKED_AT_CHARS])
    if found is None or is_device(int(found[1])):
        return "gpu_hardware"
    application = catalogued(int(found[1])).klass == "application"
    return "cuda_error" if application else ""


def _says(text: str, words: tuple[str, ...]) -> bool:
    lowered = text[:_LOOKED_AT_CHARS].lower()
    return any(word in lowered for word in words)


def _inner(type_name: str) -> str:
    """Return ``OutOfMemoryError`` of Ray's ``RayTaskError(OutOfMemoryError)``."""
    _, found, inner = type_name.partition("RayTaskError(")
    return inner.rstrip(")") if found else type_name


def _importing(error: Error) -> bool:
    last = [frame for frame in error.frames if frame][-2:]
    return len(last) > 1 and all(_MODULE in frame for frame in last)
