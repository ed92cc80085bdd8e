"""A GPU that fails: what CUDA says of it in the rank, when the driver has noticed."""

import os
import threading
import time
from pathlib import Path

HERE = Path(os.environ.get("SCENARIO_DIR", "."))
BUS = "0000:2b:00"


def _sicken():
    """Have the fake NVML tell of the fault; it has been asked before, when well."""
    rest = threading.Event().wait
    while not (HERE / "seen").exists():
        rest(0.01)
    (HERE / "sickens").touch()


def _kernel_says(text):
    """Add a record to the recorded kernel log that stands in for /dev/kmsg."""
    now_us = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
    with (HERE / "kmsg").open("ab", 0) as log:
        log.write(f"4,8000,{now_us},-;{text}\n".encode())


def fall_off_the_bus():
    """Xid 79, and what a CUDA call then returns."""
    _sicken()
    fell = "GPU has fallen off the bus."
    _kernel_says(f"NVRM: Xid (PCI:{BUS}): 79, pid='<unknown>', name=<unknown>, {fell}")
    raise RuntimeError("CUDA error: unspecified launch failure")


def fall_silently():
    """The same, and the rank is stuck in the driver for good."""
    _sicken()
    fell = "GPU has fallen off the bus."
    _kernel_says(f"NVRM: Xid (PCI:{BUS}): 79, {fell}")
    threading.Event().wait(600)


def double_bit():
    """An uncorrectable error of GPU memory; the kernel log says nothing here."""
    _sicken()
    raise RuntimeError("CUDA error: uncorrectable ECC error encountered")
