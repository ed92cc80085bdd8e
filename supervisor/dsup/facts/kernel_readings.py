"""All families of faults that the kernel log may tell of."""

from __future__ import annotations

from dsup.facts import (
    kernel_crash,
    kernel_gpu,
    kernel_hardware,
    kernel_network,
    kernel_oom,
    kernel_pcie,
    kernel_stall,
    kernel_storage,
)
from dsup.facts.kernel import Reading
from dsup.facts.kernel_groups import Groups


def readings() -> tuple[Reading, ...]:
    """Return a fresh reader of each family."""
    return (
        kernel_oom.OutOfMemory(),
        kernel_crash.Crashes(),
        Groups(
            (
                kernel_gpu.said,
                kernel_hardware.said,
                kernel_pcie.said,
                kernel_stall.said,
                kernel_storage.said,
                kernel_network.said,
            )
        ),
    )
