"""The words of complaints: a catalogue, all in lower case, the telling kinds first.

Source: public failure logs; NCCL (net_ib.cc, shmutils.cc, socket.cc, init.cc,
alloc.h), gloo, c10d, CUDA's error texts, glibc, CPython's faulthandler, Open MPI, UCX,
glog, Slurm, Kubernetes, Ray, PyTorch's DataLoader, fairseq, Megatron, DeepSpeed.
"""

from __future__ import annotations

import re
from typing import Final

from dsup.facts.logs.said import ComplaintKind

NOISE: Final = (
    "bypassing sigterm",
    "received sigterm: 15",
    "client socket cannot be initialized (errno: 97",
    "connection closed by localrank",
    "process group has not been destroyed",
    "destroy_process_group() was not called",
    "omp_num_threads",
    "tokenizers_parallelism",
    "the current process just got forked",
    "failed to send message_task_exit",
    "resource_tracker: ",
    "leaked semaphore",
    "may potentially fail with unexpected cuda errors",
    "cgroup",
    "build stopped",
    "is killed by signal: terminated",
    "nccl info",
    "initialization options",
    "cuda kernel errors might be",
    "to enable device-side assertions",
    "unused parameters",
    "futurewarning",
    "userwarning",
    "deprecationwarning",
    "maxretryerror(",
    "httpsconnectionpool(",
    "httpconnectionpool(",
)
"""Of these no complaint is made, whatever else such a line says."""

OWN_NOISE: Final = ("nccl info", "cgroup", "userwarning", "initialization options")
"""Those that a memory or device complaint may stand beside."""

WORDS: Final[tuple[tuple[ComplaintKind, tuple[str, ...]], ...]] = (
    (
        "ecc",
        (
            "uncorrectable ecc",
            "uncorrectable nvlink",
            "fallen off the bus",
            "gpu is lost",
            "nvrm: xid",
            "row remap",
            "double bit ecc",
            "double-bit ecc",
        ),
    ),
    (
        "oom_host",
        (
            "oom-kill",
            "oom_kill",
            "oomkill",
            "oom killed",
            "out of memory: kill",
            "memory cgroup out of memory",
            "exceeded memory limit",
            "exceeded step memory",
            "exceeded job memory",
            "due to memory pressure",
            "due to the node running low on memory",
            "defaultcpuallocator",
            "can't allocate memory: you tried",
            "the node was low on resource: memory",
            "term_memlimit",
        ),
    ),
    (
        "memlock",
        (
            "ibv_create_cq failed",
            "ibv_create_qp failed",
            "ibv_reg_mr failed",
            "call to ibv_create_cq",
            "call to ibv_create_qp",
            "call to ibv_reg_mr",
            "rlimit_memlock",
        ),
    ),
    (
        "oom_device",
        (
            "cuda out of memory",
            "hip out of memory",
            "xpu out of memory",
            "cuda error: out of memory",
            "cuda failure 2 ",
            "'out of memory'",
            "failed to cuda calloc",
            "failed to cuda malloc",
            "cublas_status_alloc_failed",
        ),
    ),
    (
        "loader",
        (
            "dataloader worker (pid",
            "encountered in worker",
        ),
    ),
    (
        "shm",
        (
            "shared memory segment",
            "/dev/shm",  # noqa: S108 (a word of a message)
            "insufficient shared memory",
            "posix_fallocate failed",
        ),
    ),
    (
        "disk",
        (
            "no space left on device",
            "disk quota exceeded",
            "file write failed",
            "[errno 28]",
            "[errno 122]",
        ),
    ),
    (
        "nic",
        (
            "got async event",
            "local catastrophic error",
            "ibv_get_async_event failed",
            ": port error",
            "qp fatal",
        ),
    ),
    (
        "launch",
        (
            "container start failed",
            "couldn't start container",
            "failed to invoke spank plugin stack",
            "application launch failed",
            "srun: error: task launch for ",
            "error: execve(): ",
            "aborted before step completely launched",
        ),
    ),
    (
        "completion",
        (
            "got completion from peer",
            "got completion with error",
            "completed with error. rc: ",
        ),
    ),
    ("port", ("address already in use", "eaddrinuse")),
    (
        "other",
        (
            "duplicate gpu detected",
            "pthread_create failed",
            "thread creation failed",
            "collective mismatch error",
            "mismatched collective detected",
            "we are taking the entire process down",
            "op.preamble.length <= op.nbytes",
            "no socket interface found",
            "ranks has already checked in",
            "is neither af_inet",
        ),
    ),
    (
        "killed",
        (
            "worker exit type: system_error",
            "worker died or was killed while executing",
            "its worker process has died",
        ),
    ),
    (
        "store",
        (
            '"should dump" flag',
            "sendbytes failed",
            "recvvalue failed",
            "failed to recv, got 0 bytes",
            "rendezvousconnectionerror",
            "rendezvousclosederror",
            "rendezvoustimeouterror",
            "connection was likely closed",
            "connection to the c10d store has failed",
            "keep-alive heartbeat",
            "waitforinput, poll for socket",
            "tcpstore.cpp",
        ),
    ),
    (
        "device",
        (
            "cuda error:",
            "cuda failure",
            "thcudacheck fail",
            "cuda runtime error (",
            "hip error",
            "xpu error",
            "cublas_status_",
            "cudnn_status_",
            "illegal memory access",
            "unspecified launch failure",
            "device-side assert",
            "unhandled cuda error",
            "`... failed",
        ),
    ),
    (
        "remote",
        (
            "ncclremoteerror",
            "remote process exited or there was a network error",
            "connection closed by remote peer",
            "connection closed by peer",
            "connection reset by peer",
            "socketprogress",
            "socket recv failed",
            "connection refused",
            "application timeout caused pair closure",
            "no route to host",
            "network is unreachable",
            "ncclsystemerror: system call",
        ),
    ),
    (
        "nan",
        (
            "loss is nan",
            "loss became nan",
            "loss = nan",
            "loss: nan",
            "found nan",
            "nan detected",
            "nan loss",
            "loss scale already at minimum",
            "minimum loss scale reached",
            "non-finite",
            "not finite",
            "inf or nan",
        ),
    ),
    (
        "node",
        (
            "due to node failure",
            "node failure",
            "node_fail",
            "nodelost",
            "node is not ready",
            "will be terminated soon",
            "node lost",
            "evicted",
            "unreachable node",
            "communication connection failure",
            "lost communication with a remote daemon",
        ),
    ),
)

SIGNALS: Final = (
    ("segmentation fault", 11),
    ("segfault", 11),
    ("sigsegv", 11),
    ("bus error", 7),
    ("sigbus", 7),
    ("aborted", 6),
    ("sigabrt", 6),
    ("illegal instruction", 4),
    ("sigill", 4),
    ("floating point exception", 8),
    ("sigfpe", 8),
    ("killed", 9),
    ("sigkill", 9),
    ("sigterm", 15),
    ("terminated", 15),
)

GLIBC: Final = (
    "double free or corruption",
    "corrupted double-linked list",
    "corrupted size vs. prev_size",
    "free(): invalid",
    "malloc(): ",
    "malloc_consolidate(): ",
    "munmap_chunk(): ",
    "realloc(): ",
    "stack smashing detected",
    "buffer overflow detected",
    "fatal glibc error",
    "terminate called ",
    "libc++abi: terminating ",
    "corruption_prev",
)

CODE: Final = re.compile(r"\braise [A-Za-z_][\w.]{0,80}\(")
"""A script that would raise, not one that did."""

CRASHES: Final = (
    "fatal python error",
    "*** process received signal ***",
    "signal: segmentation fault",
    "signal: aborted",
    "signal: bus error",
    "caught signal ",
    "*** sig",
    "*** aborted at ",
    "segmentation fault (core dumped)",
    "aborted (core dumped)",
    "bus error (core dumped)",
    "illegal instruction (core dumped)",
)
