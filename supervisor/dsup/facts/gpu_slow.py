"""Why a GPU may make its rank slower than others, by NVML's word: pure.

Only what the device itself calls a limit counts: clocks lowered for a reason, and a
PCIe link with fewer lanes than it has. A high temperature alone slows nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

from dsup.facts import gpu_load
from dsup.facts.hardware import Gpu
from dsup.facts.nvml import Probed, Reading, decode_readings


def reasons(probed: Probed, used: Mapping[int, Gpu | None]) -> dict[int, str]:
    """Return for ranks why their GPU may be slow; nothing where nothing is known.

    Args:
        probed: what the probe said.
        used: GPU of each rank; None where that is unknown.
    """
    loads = gpu_load.decode(probed.loads)
    readings = decode_readings(probed.before)
    found = {}
    for rank, gpu in used.items():
        if gpu is None:
            continue
        load = loads.get(gpu.number, gpu_load.Load(gpu.number))
        lanes = _lanes(readings.get(gpu.number, Reading()))
        slowed = [f"is slowed down by {why}" for why in load.slowed]
        said = [*slowed, *([lanes] if lanes else [])]
        if said:
            found[rank] = f"GPU {gpu.number} {' and '.join(said)}"
    return found


def _lanes(reading: Reading) -> str:
    width, most = (reading.values.get(f"pcie_width{which}") for which in ("", "_max"))
    narrow = width is not None and most is not None and 0 < width < most
    return f"has {width} of {most} PCIe lanes" if narrow else ""
