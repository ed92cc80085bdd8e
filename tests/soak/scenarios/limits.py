"""Limits that are reached: descriptors, processes, address space, disks, memory."""

import mmap
import os
import resource
import threading
from pathlib import Path

rest = threading.Event().wait
MIB = 1 << 20


def descriptors():
    """Open files until ``ulimit -n`` says no."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
    while True:
        os.open(__file__, os.O_RDONLY)


def threads_of_user():
    """Start threads until ``ulimit -u`` says no; root knows no such limit."""
    os.setgroups([])
    os.setgid(64_123)
    os.setuid(64_123)
    resource.setrlimit(resource.RLIMIT_NPROC, (24, 24))
    _start_threads()


def threads_of_cgroup():
    """Start threads until the cgroup's ``pids.max`` says no."""
    group = Path(os.environ["SCENARIO_CGROUP"])
    (group / "cgroup.procs").write_text(str(os.getpid()))
    _start_threads()


def _start_threads():
    over = threading.Event()
    while True:
        threading.Thread(target=over.wait, daemon=True).start()


def address_space():
    """Have torch allocate more than ``ulimit -v`` allows."""
    import torch

    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + 512 * MIB
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    torch.empty(4096 * MIB, dtype=torch.uint8)


def leak():
    """Keep what each step allocates, some 40 MiB a second, until the kernel ends it."""
    kept = []
    while True:
        kept.append(b"\xff" * (10 * MIB))
        rest(0.25)


def shared_memory_mapping():
    """Write to a mapping of /dev/shm that is larger than its file system."""
    with Path("/dev/shm/ring-buffer").open("w+b") as file:  # noqa: S108
        file.truncate(64 * MIB)
        with mmap.mmap(file.fileno(), 64 * MIB) as ring:
            for at in range(0, 64 * MIB, mmap.PAGESIZE):
                ring[at] = 1


def checkpoint_by_torch():
    """Have torch save a checkpoint where there is no room for it."""
    import torch

    torch.save({"weights": torch.ones(8 * MIB)}, _place() / "step_30.pt")


def checkpoint_by_hand():
    """Write a checkpoint where there is no room for it."""
    with (_place() / "step_30.bin").open("wb") as file:
        for _ in range(64):
            file.write(b"\x01" * MIB)


def _place():
    return Path(os.environ["SCENARIO_DIR"]) / "checkpoints"
