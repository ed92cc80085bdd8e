"""GPUs as a job that begins now would meet them: fabric, persistence, room. Pure.

Source: https://docs.nvidia.com/deploy/nvml-api/
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from dsup.checkup.checks.each_gpu import each_gpu, name_of
from dsup.checkup.finding import Check, Said
from dsup.checkup.readings import Readings
from dsup.facts import nvml
from dsup.facts.nvml import Reading

_HELD_BYTES: Final = 2 << 30
"""A driver keeps some hundred MiB for itself; more is somebody's."""

_COMPLETED: Final = 3


def fabric(readings: Readings) -> Iterator[Said]:
    """On a board with NVSwitches nothing starts until the fabric is up (CUDA 802)."""
    told = False
    for card, reading in each_gpu(readings):
        state = reading.values.get("fabric_state", 0)
        status = reading.values.get("fabric_status", 0)
        told = told or state > 0
        if 0 < state < _COMPLETED or (state == _COMPLETED and status):
            yield Said(
                "bad",
                f"{name_of(card)} is not part of the NVSwitch fabric (state {state}, "
                f"status {status})",
                "systemctl restart nvidia-fabricmanager",
            )
    driver = readings.driver
    if driver and driver.switches and not told and not driver.fabric_manager:
        hidden = bool(readings.system and readings.system.container)
        yield Said(
            "unknown" if hidden else "bad",
            f"{driver.switches} NVSwitches, and no fabric manager is to be seen",
            "systemctl start nvidia-fabricmanager",
        )


def persistence(readings: Readings) -> Iterator[Said]:
    """Without persistence each first user starts the GPU anew.

    That takes seconds, and its counters of errors begin at zero again.
    """
    off = [
        c.gpu.number for c, r in each_gpu(readings) if r.values.get("persistence") == 0
    ]
    if off and not (readings.driver and readings.driver.persistenced):
        names = ", ".join(map(str, off))
        yield Said(
            "warn",
            f"persistence mode is off on GPU {names}",
            "systemctl enable --now nvidia-persistenced",
        )


def held(readings: Readings) -> Iterator[Said]:
    """Memory of a GPU that another process holds, or that nobody seems to hold.

    Threshold without a process: 2 GiB. A holder in state D will not go by any signal.
    """
    names = {row[0]: row for row in (readings.holders.rows if readings.holders else ())}
    for pid, comm, state, minors in names.values():
        if state == "D":
            where = ", ".join(f"/dev/nvidia{minor}" for minor in minors)
            text = f"{comm} (pid {pid}) is stuck in the kernel and holds {where}"
            yield Said("bad", text, "reboot: a process in state D ends by no signal")
    for card, reading in each_gpu(readings):
        found = _processes(reading)
        for pid, size in found.items():
            row = names.get(pid)
            who = f"{row[1]} (pid {pid})" if row else f"pid {pid}"
            fix = f"ps -fp {pid}; kill {pid}"
            yield Said("warn", f"{who} holds {_size(size)} of {name_of(card)}", fix)
        used = reading.values.get("memory_used", 0)
        if not found and used > _HELD_BYTES:
            yield Said(
                "warn",
                f"{_size(used)} of {name_of(card)} are held, and by no process that is "
                "to be seen",
                "fuser -v /dev/nvidia*; it may be another container's",
            )


CHECKS: Final = (
    Check("fabric", "GPUs", fabric),
    Check("persistence", "GPUs", persistence),
    Check("gpu-memory", "GPUs", held),
)


def _processes(reading: Reading) -> dict[int, int]:
    return {
        int(name.removeprefix(nvml.PROCESS)): size
        for name, size in reading.values.items()
        if name.startswith(nvml.PROCESS) and name[len(nvml.PROCESS) :].isdecimal()
    }


def _size(size: int) -> str:
    return f"{size / (1 << 30):.1f} GiB"
