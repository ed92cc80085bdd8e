"""What GPUs do at one moment, by NVML's word: pure.

A kernel that waits for another GPU keeps its own busy and moves no memory; a GPU for
which nobody has work does nothing. So the pair tells who waits on a device.

Source: https://docs.nvidia.com/deploy/nvml-api/ (nvmlUtilization_t)
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from dsup.facts.gpu_health import THROTTLED
from dsup.facts.nvml import Reading, decode_readings

BUSY: Final = 90
IDLE: Final = 5
"""Percent of the last second or so; what is above the one, or below the other."""

_LEVELS: Final = range(16)


class Load(NamedTuple):
    """What a GPU did.

    Attributes:
        gpu: NVML's index.
        busy: percent of the time in which a kernel ran; None if unknown.
        memory: percent of the time in which its memory was read or written.
        watts: None if unknown.
        level: N of the performance state PN; None if unknown.
        slowed: why its clocks were lowered.
        at_s: agent clock, seconds; None if unknown.
    """

    gpu: int
    busy: int | None = None
    memory: int | None = None
    watts: float | None = None
    level: int | None = None
    slowed: tuple[str, ...] = ()
    at_s: float | None = None


def decode(bodies: Iterable[bytes]) -> dict[int, Load]:
    """Return what each GPU did, by NVML's index."""
    readings = decode_readings(bodies)
    return {number: _load(number, reading) for number, reading in readings.items()}


def told(load: Load) -> str:
    """Return ``GPU 3 busy 100 % with memory idle: a kernel spins; 118 W, P0``."""
    more = [] if load.watts is None else [f"{load.watts:.0f} W"]
    more += [] if load.level is None else [f"P{load.level}"]
    more += [f"slowed down: {', '.join(load.slowed)}"] if load.slowed else []
    return "; ".join(filter(None, (_work(load), ", ".join(more))))


def _work(load: Load) -> str:
    name, busy, memory = f"GPU {load.gpu}", load.busy, load.memory
    if busy is None:
        return f"{name} does not tell how busy it is"
    if busy < IDLE:
        return f"{name} idle: nothing runs on it"
    if busy >= BUSY and memory is not None and memory < IDLE:
        return f"{name} busy {busy} % with memory idle: a kernel spins"
    rest = "" if memory is None else f", memory {memory} %"
    return f"{name} busy {busy} %{rest}"


def _load(number: int, reading: Reading) -> Load:
    values = reading.values
    power, level = values.get("milliwatts"), values.get("level")
    bits = values.get("throttle", 0)
    return Load(
        number,
        _percent(values.get("busy")),
        _percent(values.get("memory")),
        None if power is None or power < 0 else power / 1000,
        level if level in _LEVELS else None,
        tuple(words for bit, words in THROTTLED.items() if bits & bit),
        reading.at_s,
    )


def _percent(value: int | None) -> int | None:
    return value if value is not None and 0 <= value <= 100 else None  # noqa: PLR2004
