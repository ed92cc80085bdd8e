"""Communication errors told from a rank's own, and exceptions from each other."""

import pytest

from dsup.core.exits import CAUSES
from dsup.facts.errors import (
    cause_of,
    communication,
    is_communication,
    is_timeout,
    worker_pids,
)

GLOO = "[gloo/transport/tcp/pair.cc:553] "


@pytest.mark.parametrize(
    ("type_name", "text", "how"),
    [
        pytest.param(
            "dsup_runtime.errors.PeerError",
            "cannot go on, because rank 1 failed: CUDA out of memory",
            "another rank failed",
            id="the runtime, quoting a peer's own reason",
        ),
        pytest.param(
            "dsup_runtime.errors.BarrierTimeout",
            "cannot pass barrier 'save', because rank 1 did not come within 3.0 s",
            "barrier not passed",
            id="the runtime's barrier",
        ),
        pytest.param(
            "RuntimeError",
            f"{GLOO}Connection closed by peer [127.0.0.1]:23754.",
            "connection closed by peer",
            id="gloo, closed",
        ),
        pytest.param(
            "RuntimeError",
            f"{GLOO}Read error [127.0.0.1]:1: Connection reset by peer.",
            "connection closed by peer",
            id="gloo, reset",
        ),
        pytest.param(
            "RuntimeError",
            f"{GLOO}Timed out waiting 4000ms for recv operation to complete",
            "collective timed out",
            id="gloo, time-out",
        ),
        pytest.param(
            "RuntimeError",
            "Application timeout caused pair closure",
            "collective timed out",
            id="gloo, pair closure",
        ),
        pytest.param(
            "RuntimeError",
            "Gloo connectFullMesh failed with timed out connecting",
            "connection failed",
            id="gloo, mesh",
        ),
        pytest.param(
            "torch.distributed.DistNetworkError",
            "Connection reset by peer",
            "store lost",
            id="TCPStore, reset",
        ),
        pytest.param(
            "torch.distributed.DistNetworkError",
            "failed to recv, got 0 bytes",
            "store lost",
            id="TCPStore, end of stream",
        ),
        pytest.param(
            "torch.distributed.DistStoreError",
            "wait timeout after 1000ms, keys: /default_pg/0//k",
            "timed out waiting for the others",
            id="TCPStore, wait",
        ),
        pytest.param(
            "torch.distributed.DistStoreError",
            "Timed out after 5 seconds waiting for clients. 3/4 clients joined.",
            "timed out waiting for the others",
            id="TCPStore, clients",
        ),
        pytest.param(
            "torch.distributed.DistBackendError",
            "NCCL error: ncclRemoteError: A call failed possibly due to the network",
            "NCCL remote error",
            id="NCCL, remote",
        ),
        pytest.param(
            "torch.distributed.DistBackendError",
            "NCCL communicator was aborted on rank 1.",
            "connection failed",
            id="NCCL, aborted",
        ),
        pytest.param(
            "",
            "[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1)",
            "collective timed out",
            id="a watchdog's line",
        ),
        pytest.param(
            "RuntimeError",
            "Rank 1 successfully reached monitoredBarrier, but received errors",
            "monitored barrier not passed",
            id="monitored barrier",
        ),
        pytest.param(
            "BrokenPipeError",
            "[Errno 32] Broken pipe",
            "connection closed by peer",
            id="Python's own",
        ),
    ],
)
def test_what_a_victim_raises(type_name, text, how):
    """An error that another rank's end brings about is told by its kind."""
    assert communication(type_name, text) == how
    assert is_communication(type_name, text)


@pytest.mark.parametrize(
    ("type_name", "text"),
    [
        pytest.param("ValueError", "Connection closed by peer", id="another type"),
        pytest.param(
            "requests.exceptions.ConnectionError", "Connection refused", id="a service"
        ),
        pytest.param("EOFError", "Ran out of input", id="a file's end"),
        pytest.param("RuntimeError", "shape mismatch", id="another text"),
        pytest.param(
            "",
            "watchdog thread terminated with exception: CUDA error: an illegal memory "
            "access was encountered",
            id="CUDA in a watchdog's words",
        ),
        pytest.param(
            "torch.distributed.DistBackendError",
            "NCCL WARN Cuda failure 'out of memory'",
            id="GPU memory in NCCL's words",
        ),
        pytest.param(
            "torch.distributed.DistBackendError",
            "ncclSystemError: Error while creating shared memory segment /dev/shm/nccl",
            id="shared memory in NCCL's words",
        ),
        pytest.param(
            "torch.distributed.DistBackendError",
            "ibv_create_cq failed: Cannot allocate memory",
            id="locked memory in NCCL's words",
        ),
        pytest.param(
            "torch.distributed.DistNetworkError",
            "The server socket has failed to listen, name: EADDRINUSE",
            id="a port in use",
        ),
        pytest.param(
            "RuntimeError",
            "Detected mismatch between collectives on ranks",
            id="a mismatch",
        ),
    ],
)
def test_what_is_a_rank_s_own(type_name, text):
    """A reason in the rank itself is no communication error, whatever wraps it."""
    assert not is_communication(type_name, text)


@pytest.mark.parametrize(
    ("how", "late"),
    [
        pytest.param("collective timed out", True, id="collective"),
        pytest.param("timed out waiting for the others", True, id="store"),
        pytest.param("monitored barrier not passed", True, id="barrier"),
        pytest.param("connection closed by peer", False, id="closed"),
    ],
)
def test_which_kinds_are_time_outs(how, late):
    """A time-out means that nobody came; a closed connection that somebody went."""
    assert is_timeout(how) is late


@pytest.mark.parametrize(
    ("type_name", "text", "cause"),
    [
        pytest.param(
            "ModuleNotFoundError", "No module named 'x'", "import_error", id="module"
        ),
        pytest.param(
            "OSError", "x.so: undefined symbol: foo", "import_error", id="symbol"
        ),
        pytest.param(
            "pydantic_core.ValidationError", "1 error", "config_error", id="pydantic"
        ),
        pytest.param(
            "omegaconf.errors.ConfigKeyError",
            "Key 'lr'",
            "config_error",
            id="OmegaConf",
        ),
        pytest.param(
            "FileNotFoundError",
            "[Errno 2] No such file or directory: 'conf/7B.yaml'",
            "config_error",
            id="no configuration",
        ),
        pytest.param(
            "FileNotFoundError",
            "[Errno 2] No such file or directory: 'last.ckpt'",
            "checkpoint_error",
            id="no checkpoint",
        ),
        pytest.param(
            "FileNotFoundError",
            "[Errno 2] No such file or directory: 'data.bin'",
            "python_exception",
            id="no data",
        ),
        pytest.param(
            "RuntimeError",
            "Error(s) in loading state_dict for Net:",
            "checkpoint_error",
            id="state dict",
        ),
        pytest.param(
            "ValueError",
            "Size mismatch between saved torch.Size([4]) and current: torch.Size([8])",
            "checkpoint_error",
            id="a sharded checkpoint of another model",
        ),
        pytest.param(
            "RuntimeError",
            "PytorchStreamReader failed reading zip archive",
            "checkpoint_error",
            id="torn checkpoint",
        ),
        pytest.param(
            "RuntimeError",
            "PytorchStreamWriter failed writing file data/3: file write failed",
            "disk_full",
            id="checkpoint, disk full",
        ),
        pytest.param(
            "RuntimeError",
            "[enforce fail at inline_container.cc:820] . unexpected pos 1408 vs 1302",
            "disk_full",
            id="checkpoint, a write was lost",
        ),
        pytest.param(
            "RuntimeError",
            "basic_ios::clear: iostream error",
            "disk_full",
            id="checkpoint, a stream failed",
        ),
        pytest.param(
            "TypeError",
            "step() got an unexpected positional argument",
            "python_exception",
            id="no write",
        ),
        pytest.param("torch.OutOfMemoryError", "", "cuda_oom", id="GPU memory"),
        pytest.param(
            "RuntimeError", "CUDA error: out of memory", "cuda_oom", id="old GPU memory"
        ),
        pytest.param(
            "torch.AcceleratorError",
            "CUDA error: device-side assert triggered",
            "device_assert",
            id="device assertion",
        ),
        pytest.param(
            "RuntimeError",
            "CUDA error: an illegal memory access was encountered",
            "cuda_error",
            id="CUDA",
        ),
        pytest.param(
            "RuntimeError",
            "CUDA error: uncorrectable ECC error encountered",
            "gpu_hardware",
            id="ECC",
        ),
        pytest.param(
            "RuntimeError",
            "DataLoader worker (pid 3) is killed by signal: Bus error.",
            "dataloader_worker",
            id="DataLoader worker",
        ),
        pytest.param(
            "OSError", "[Errno 122] Disk quota exceeded", "disk_full", id="quota"
        ),
        pytest.param("OSError", "[Errno 5] Input/output error", "storage_io", id="EIO"),
        pytest.param(
            "OSError", "[Errno 116] Stale file handle: '/d'", "storage_io", id="ESTALE"
        ),
        pytest.param(
            "OSError",
            "[Errno 107] Transport endpoint is not connected: '/mnt/d'",
            "storage_io",
            id="ENOTCONN of a mount",
        ),
        pytest.param(
            "OSError", "[Errno 98] Address already in use", "port_in_use", id="port"
        ),
        pytest.param(
            "RuntimeError", "can't start new thread", "pids_limit", id="thread"
        ),
        pytest.param(
            "BlockingIOError",
            "[Errno 11] Resource temporarily unavailable",
            "pids_limit",
            id="fork",
        ),
        pytest.param(
            "RuntimeError",
            "Detected mismatch between collectives on ranks.",
            "collective_mismatch",
            id="mismatch",
        ),
        pytest.param(
            "dsup_runtime.NumericsError", "", "numeric_divergence", id="numeric gates"
        ),
        pytest.param(
            "RuntimeError",
            "unexpected bus error encountered",
            "sigbus",
            id="a worker's bus error",
        ),
        pytest.param("ValueError", "no labels", "python_exception", id="all others"),
    ],
)
def test_the_cause_of_an_exception(type_name, text, cause):
    """Type and text tell the cause; what they do not tell is a Python exception."""
    assert cause_of(type_name, text) == cause
    assert cause in CAUSES


def test_a_wrapped_resource_error_keeps_its_cause():
    """A framework's own exception around a lack of memory or space hides nothing."""
    inner = (("OSError", "[Errno 28] No space left on device"),)

    assert cause_of("lightning.MisconfigurationException", "x", inner) == "disk_full"


def test_an_import_that_was_tried_is_no_cause():
    """Code often tries an import and goes on; inside another error it means little."""
    inner = (("ModuleNotFoundError", "No module named 'apex'"),)

    assert cause_of("ValueError", "no", inner) == "python_exception"


@pytest.mark.parametrize(
    ("text", "pids"),
    [
        pytest.param(
            "DataLoader worker (pid(s) 41, 42) exited unexpectedly", (41, 42), id="two"
        ),
        pytest.param(
            "DataLoader worker (pid 41) is killed by signal: Killed. ", (41,), id="one"
        ),
        pytest.param("DataLoader worker (pid(s) ", (), id="cut off"),
        pytest.param(f"DataLoader worker (pid {'9' * 5000})", (), id="no pid"),
        pytest.param("no worker", (), id="none"),
    ],
)
def test_the_pids_of_dataloader_workers(text, pids):
    """The pids that torch lists are read, and nothing else."""
    assert worker_pids(text) == pids


def test_only_the_beginning_of_a_text_is_looked_at():
    """A text of any length costs the same."""
    assert not is_communication("RuntimeError", "x" * 10_000 + "broken pipe")
