"""The words by which errors are told apart: a catalogue, all in lower case.

Source: public failure logs; NCCL, gloo and c10d of torch 1.13 to 2.13.
"""

from __future__ import annotations

from typing import Final, NamedTuple

LOCAL: Final = (
    "out of memory",
    "cannot allocate memory",
    "shared memory segment",
    "no space left",
    "device-side assert",
    "illegal memory access",
    "unspecified launch failure",
    "ecc error",
    "cuda error",
    "cuda failure",
    "failed to cuda",
    "unhandled cuda error",
    "hip error",
    "ibv_create",
    "async event",
    "duplicate gpu",
    "ncclinvalid",
    "detected mismatch between collectives",
    "collectivefingerprint",
    "eaddrinuse",
    "address already in use",
    "dataloader worker (pid",
    "can't start new thread",
    "op.preamble.length <= op.nbytes",
    "no socket interface found",
    "has already checked in",
    "is neither af_inet",
)
"""What makes an error of the communication library one of the rank's own.

Source: public failure logs; NCCL and c10d wrap such reasons in the words of a time-out.
"""


PEER_TYPES: Final = frozenset(
    {
        "BrokenPipeError",
        "ConnectionAbortedError",
        "ConnectionRefusedError",
        "ConnectionResetError",
    }
)
"""Python's own, without a module: a library's ``ConnectionError`` means a service."""


DISTRIBUTED_TYPES: Final = frozenset(
    {
        "DistBackendError",
        "DistNetworkError",
        "DistStoreError",
        "HorovodInternalError",
        "PeerError",
        "BarrierTimeout",
        "RendezvousClosedError",
        "RendezvousConnectionError",
        "RendezvousTimeoutError",
    }
)


RELAYED: Final = {
    "dsup_runtime.errors.PeerError": "another rank failed",
    "dsup_runtime.errors.BarrierTimeout": "barrier not passed",
}
"""The runtime's own: whatever words they quote, the reason is another rank's."""


class Words(NamedTuple):
    """Substrings that tell one kind of communication error, and its short name."""

    how: str
    words: tuple[str, ...]


COMMUNICATION: Final = (
    Words("monitored barrier not passed", ("monitoredbarrier",)),
    Words(
        "store lost",
        (
            "failed to recv, got 0 bytes",
            "connection was likely closed",
            '"should dump" flag',
            "recvvalue failed",
            "sendbytes failed",
            "connection to the c10d store has failed",
            "client socket has timed out after",
            "connect() timed out. original timeout",
        ),
    ),
    Words(
        "NCCL remote error",
        (
            "ncclremoteerror",
            "remote process exited or there was a network error",
            "socketprogress: connection closed",
        ),
    ),
    Words(
        "collective timed out",
        (
            "watchdog caught collective operation timeout",
            "some nccl operations have failed or timed out",
            "application timeout caused pair closure",
            "taking the entire process down",
            "timed out waiting",
        ),
    ),
    Words(
        "timed out waiting for the others",
        (
            "waiting for clients",
            "store based barrier",
            "wait timeout after",
            "socket timeout",
            "has timed out",
        ),
    ),
    Words(
        "connection closed by peer",
        (
            "connection closed by",
            "connection reset by peer",
            "connection refused",
            "broken pipe",
            "socket closed",
        ),
    ),
    Words(
        "connection failed",
        (
            "connectfullmesh failed",
            "ops function error: hccl",
            "/gloo/transport/",
            "ncclsystemerror",
            "horovod has been shut down",
            "distbackenderror",
            "distnetworkerror",
            "diststoreerror",
        ),
    ),
)


PLAIN_TYPES: Final = frozenset({"", "RuntimeError"})
"""Whose text counts: C++ errors without a type of their own, and lines of a log."""


class Row(NamedTuple):
    """A cause, by the last part of the type's name or by words of the text."""

    cause: str
    types: tuple[str, ...] = ()
    words: tuple[str, ...] = ()


NO_SPACE: Final = (
    "[errno 28]",
    "[errno 122]",
    "no space left on device",
    "disk quota exceeded",
)
"""The kernel's word on a full disk: its errno, or what that means."""


FAILED_WRITES: Final = (
    "pytorchstreamwriter failed writing",
    "] . unexpected pos ",
    "basic_ios::clear: iostream error",
)
"""How torch tells of a write that failed: without an errno, so likely on a full disk.

Source: caffe2/serialize/inline_container.cc, whose zip writer is at another place of
the file than it has written; libstdc++'s streams.
"""


DEEP: Final = (
    Row("dataloader_worker", words=("dataloader worker (pid",)),
    # Not "device-side assertions": each CUDA error tells how to enable these.
    Row("device_assert", words=("device-side assert triggered",)),
    Row("gpu_hardware", words=("uncorrectable ecc", "gpu is lost")),
    Row(
        "cuda_oom",
        ("OutOfMemoryError",),
        (
            "cuda out of memory",
            "hip out of memory",
            "cuda error: out of memory",
            "'out of memory'",
            "failed to cuda calloc",
            "cublas_status_alloc_failed",
        ),
    ),
    Row(
        "collective_mismatch",
        words=(
            "collectivefingerprint",
            "detected mismatch between collectives",
            "mismatched collective detected",
            # gloo: a message of another size than the one that is waited for.
            "op.preamble.length <= op.nbytes",
        ),
    ),
    Row("port_in_use", words=("[errno 98]", "eaddrinuse", "address already in use")),
    Row(
        "disk_full",
        words=(
            *NO_SPACE,
            *FAILED_WRITES,
        ),
    ),
    Row(
        "pids_limit",
        words=(
            "can't start new thread",
            "thread creation failed",
            "pthread_create failed",
            "fork: resource temporarily unavailable",
            "[errno 11] resource temporarily unavailable",
        ),
    ),
    Row(
        "storage_io",
        words=(
            "[errno 5]",
            "[errno 116]",
            "[errno 121]",
            "stale file handle",
            "endpoint is not connected: '",
        ),
    ),
    Row("sigbus", words=("unexpected bus error",)),
    Row(
        "cuda_error",
        ("AcceleratorError",),
        (
            "cuda error",
            "cuda failure",
            "unhandled cuda error",
            "cublas_status",
            "cudnn_status",
            "cudnn error",
            "hip error",
            "illegal memory access",
        ),
    ),
)
"""Causes that count also where the exception they raised was wrapped in another."""


OUTER: Final = (
    Row(
        "checkpoint_error",
        ("CheckpointException", "SafetensorError"),
        (
            "error(s) in loading state_dict",
            "copying a param with shape",
            "pytorchstreamreader failed",
            "invalid magic number; corrupt file",
            "unexpected eof, expected",
            "weights only load failed",
            "archive may be corrupted",
            # torch.distributed.checkpoint's planner: no load_state_dict says it.
            "size mismatch between saved",
            "missing key in checkpoint state_dict",
            "mismatch sizes torch.size",
        ),
    ),
    Row(
        "import_error",
        ("ImportError", "ModuleNotFoundError"),
        ("undefined symbol", "cannot open shared object file", "failed to import "),
    ),
    Row(
        "config_error",
        (
            "ArgumentError",
            "ConfigAttributeError",
            "ConfigCompositionException",
            "ConfigKeyError",
            "ConfigTypeError",
            "HydraException",
            "MissingConfigException",
            "MissingMandatoryValue",
            "OverrideParseException",
            "TOMLDecodeError",
            "UsageError",
            "ValidationError",
        ),
    ),
)
"""Causes that count only where nothing wraps them: such errors are often caught."""


OWN: Final = {
    "dsup_runtime.NumericsError": "numeric_divergence",
    "dsup_runtime.DropBudgetExceeded": "numeric_divergence",
    "dsup_runtime.CheckpointError": "checkpoint_error",
    "dsup_runtime.NoValidCheckpoint": "checkpoint_error",
}


MISSING: Final = {
    "config_error": (".yaml'", ".yml'", ".toml'", ".ini'", ".cfg'", "config.json'"),
    "checkpoint_error": (".pt'", ".pth'", ".ckpt'", ".safetensors'", ".distcp'"),
}
"""What a file that was not found was for, by the end of its quoted name."""
