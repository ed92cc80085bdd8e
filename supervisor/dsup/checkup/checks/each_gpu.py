"""How checks go over the GPUs that NVML told of. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from typing import Final, TypeAlias

from dsup.checkup.finding import Said
from dsup.checkup.readings import Gpus, Readings
from dsup.facts.hardware import Access, Card, Gpu, visible_devices
from dsup.facts.nvml import Reading

HIDDEN: Final = frozenset({"", "-1", "NoDevFiles"})
"""Values of CUDA_VISIBLE_DEVICES that leave no GPU, as they are meant to."""

Judge: TypeAlias = Callable[[Readings], Iterator[Said]]


def each_gpu(readings: Readings) -> Iterator[tuple[Card, Reading]]:
    """Yield the GPUs that the job uses, each with what it answered.

    What is wrong with one that CUDA_VISIBLE_DEVICES hides is not this job's trouble.
    """
    gpus, used = readings.gpus or Gpus(), used_by(readings)
    for card in gpus.cards:
        if card.gpu.number in used:
            yield card, gpus.readings.get(card.gpu.number, Reading())


def used_by(readings: Readings) -> frozenset[int]:
    """Return the numbers of the GPUs that the job is shown; all, if that is unclear.

    A GPU without an identity, as one that was lost before, makes it unclear. A job that
    hides them all uses none.
    """
    cards = readings.gpus.cards if readings.gpus else ()
    told = readings.asked.environment
    order, listed = (told.get(f"CUDA_{n}") for n in ("DEVICE_ORDER", "VISIBLE_DEVICES"))
    if listed is not None and listed.strip() in HIDDEN:
        return frozenset()
    seen: tuple[Gpu, ...] = ()
    if listed and all(card.gpu.pci for card in cards):
        seen = visible_devices(cards, Access(0, listed, order or ""))
    return frozenset(gpu.number for gpu in seen or (card.gpu for card in cards))


def name_of(card: Card) -> str:
    """Return what a GPU is called for people."""
    gpu = card.gpu
    return f"GPU {gpu.number} ({gpu.pci})" if gpu.pci else f"GPU {gpu.number}"


def or_well(judge: Judge, value: str) -> Judge:
    """Return a check that also says that all is well, of the GPUs that tell it."""

    @wraps(judge)
    def told(readings: Readings) -> Iterator[Said]:
        found = list(judge(readings))
        yield from found
        count = sum(value in reading.values for _, reading in each_gpu(readings))
        if count and not found:
            yield Said("ok", f"nothing on {count} GPU{'s' * (count != 1)}")

    return told
