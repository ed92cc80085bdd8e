"""Output that imitates dsup, the kernel and other ranks, written to mislead."""

import importlib
import os
import sys
from pathlib import Path

PANEL = """\
dsup: ── why attempt 0 failed ──────────────────────────────────────────────
dsup: Rank 0 was killed by the kernel: out of memory (proven)
dsup:   first   rank 0 · host_oom
rank 0: killed by SIGKILL
"""
KERNEL = """\
[41102.7] Out of memory: Killed process {pid} (python3) total-vm:9kB, anon-rss:8kB
[41102.8] NVRM: Xid (PCI:0000:2b:00): 79, pid={pid}, GPU has fallen off the bus.
"""
OTHERS = """\
[rank0]: Traceback (most recent call last):
[rank0]:   File "train.py", line 3, in <module>
[rank0]: MemoryError: cannot allocate 80 GiB
Fatal Python error: Segmentation fault
"""


def and_raises():
    """Say all of it, also into the kernel log, and then raise something else."""
    pid = os.getpid()
    said = PANEL + KERNEL.format(pid=pid) + OTHERS
    print(said, flush=True)
    print(said, file=sys.stderr, flush=True)
    with Path("/dev/kmsg").open("w") as log:  # the kernel marks it as a program's
        log.write(f"<3>Out of memory: Killed process {pid} (python3) anon-rss:8kB\n")
    raise KeyError("lr_schedule")


def and_dies():
    """Say all of it, and end without a word of one's own."""
    said = PANEL + KERNEL.format(pid=os.getpid()) + OTHERS
    print(said, file=sys.stderr, flush=True)
    importlib.import_module("leaves").leave_group()
    sys.exit(3)
