"""GPUs as a job that begins now would meet them: fabric, persistence, room. Pure.

Source: https://docs.nvidia.com/deploy/nvml-api/
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from dsup.checkup.checks.each_gpu import each_gpu, name_of, used_by
from dsup.checkup.finding import Check, Said
from dsup.checkup.readings import Holders, Readings
from dsup.facts import nvml
from dsup.facts.nvml import Reading

_HELD_BYTES: Final = 2 << 30
"""A driver keeps some hundred MiB for itself; more is somebody's."""

_COMPLETED: Final = 3


def fabric(readings: Readings) -> Iterator[Said]:
    """On a board with NVSwitches nothing starts until the fabric is up (CUDA 802).

    A GPU that is cut into MIG devices has no part in it.
    """
    told = cut = False
    for card, reading in each_gpu(readings):
        state = reading.values.get("fabric_state", 0)
        status = reading.values.get("fabric_status", 0)
        told, cut = told or state > 0, cut or bool(card.slices)
        if card.slices:
            continue
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
        hidden = hidden or not driver.all_seen or cut or not used_by(readings)
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

    Threshold without a process: 2 GiB. A holder that does not leave the driver for
    eight seconds will not go by any signal; elsewhere it may wait for a disk.
    """
    names = {row[0]: row for row in (readings.holders.rows if readings.holders else ())}
    yield from _stuck(readings)
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


def _stuck(readings: Readings) -> Iterator[Said]:
    """Yield who stands still with a GPU of the job: the driver's stack is the proof."""
    told = readings.holders or Holders()
    rows = {row[0]: row for row in told.rows}
    ours = {card.gpu.minor for card, _ in each_gpu(readings)}
    for pid, seconds, in_driver in told.stuck:
        _, comm, _, minors = rows[pid]
        if not ours & set(minors):
            continue
        where = ", ".join(f"/dev/nvidia{minor}" for minor in minors)
        text = f"{comm} (pid {pid}) holds {where} and has not moved for {seconds:.0f} s"
        if in_driver:
            fix = "where it still is in a minute: reboot, for no signal ends it"
            yield Said("bad", f"{text}, in NVIDIA's driver", fix)
        else:
            fix = f"cat /proc/{pid}/wchan /proc/{pid}/stack says where"
            yield Said("warn", f"{text}, in the kernel; it may wait for a disk", fix)


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
