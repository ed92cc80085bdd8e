"""What devices say of themselves, and which of them a rank uses. Values only.

GPUs tell by NVML, network ports by sysfs. What is compared how is in ``nvml``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Literal, NamedTuple, TypeAlias

State: TypeAlias = Literal["ok", "bad", "unknown"]

Problem: TypeAlias = Literal[
    "", "lost", "reset_required", "ecc", "row_remap", "recovery_action", "xid"
]
"""The one named thing that makes a GPU bad; empty for one that is not."""


class Gpu(NamedTuple):
    """A GPU's identity, read while it answered.

    Attributes:
        number: NVML's index.
        uuid: ``GPU-…``; of a MIG device, its parent's.
        pci: ``dddd:bb:dd``, lower case, as in ``KernelFault``.
        minor: N of ``/dev/nvidiaN``; None if unknown.
        serial: of the board; empty if unknown.
        name: the model; empty if unknown.
        mig: UUID of the MIG device that is used; empty for the whole GPU.
    """

    number: int
    uuid: str
    pci: str
    minor: int | None = None
    serial: str = ""
    name: str = ""
    mig: str = ""


class GpuHealth(NamedTuple):
    """What NVML says of a GPU after a death, compared with the start of the attempt.

    Attributes:
        gpu: which one.
        state: ``bad`` only for a problem with a name; no answer is ``unknown``.
        problem: that name.
        text: one sentence for people, such as ``GPU 6 is lost (NVML error 15)``.
        xids: numbers of the Xid events that NVML told of, in order.
        notes: what is no verdict but worth reading: throttle reasons, PCIe width,
            NVLink counters that rose.
        at_s: when the first event or the answer came, agent clock, seconds.
    """

    gpu: Gpu
    state: State
    problem: Problem = ""
    text: str = ""
    xids: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()
    at_s: float | None = None


class PortChange(NamedTuple):
    """A network port whose state or error counters changed during the attempt.

    Attributes:
        device: such as ``mlx5_2``.
        port: from 1.
        what: ``state`` or the counter's name, such as ``link_downed``.
        bad: the port is down now, or went down: what breaks connections. A risen
            counter of symbol errors is not.
    """

    device: str
    port: int
    what: str
    before: str
    after: str
    bad: bool


class Slice(NamedTuple):
    """A MIG device.

    Attributes:
        uuid: ``MIG-…``, as NVML names it.
        gpu_instance: number of its GPU instance; -1 if unknown.
        compute_instance: number of its compute instance there; -1 if unknown.
    """

    uuid: str
    gpu_instance: int = -1
    compute_instance: int = -1


class Card(NamedTuple):
    """A GPU with the MIG devices it is cut into.

    Attributes:
        gpu: the whole of it.
        slices: none where MIG is off.
    """

    gpu: Gpu
    slices: tuple[Slice, ...] = ()


class Access(NamedTuple):
    """What decides which GPU a rank uses, and what shows it.

    Attributes:
        local_rank: its LOCAL_RANK.
        visible: its CUDA_VISIBLE_DEVICES; None where it is not set.
        order: its CUDA_DEVICE_ORDER; empty where it is not set.
        minors: N of each ``/dev/nvidiaN`` that it was seen to have open.
    """

    local_rank: int
    visible: str | None = None
    order: str = ""
    minors: frozenset[int] = frozenset()


_BY_BUS: Final = "PCI_BUS_ID"
_OLD_SLICE: Final = "MIG-GPU-"
_SLICE: Final = "MIG-"
_WHOLE: Final = "GPU-"
_INDEX_MAX_DIGITS: Final = 4
_PARTS: Final = 3


def pci_address(text: str) -> str:
    """Return a PCI address as ``dddd:bb:dd``, lower case; empty if it is none.

    Args:
        text: with a domain of 4 or 8 digits, and with or without the function:
            ``00000000:CB:00.0`` of NVML, ``0000:cb:00`` of the kernel log.
    """
    domain, _, rest = text.strip().lower().partition(":")
    bus, _, device = rest.partition(".")[0].partition(":")
    parts = (domain, bus, device)
    try:
        numbers = [int(part, 16) for part in parts if part.isalnum()]
    except ValueError:
        return ""
    if len(numbers) < len(parts):
        return ""
    return "{:04x}:{:02x}:{:02x}".format(*numbers)


def gpu_of(cards: Sequence[Card], access: Access) -> Gpu | None:
    """Return the GPU that a rank uses; None where that is not known.

    By convention it is the one that CUDA gives the rank's local number; the only one,
    where CUDA sees no other. What the rank has open decides where that is one GPU.
    Where it is several (a GPU's peers are opened as well), the convention must be
    among them, or nothing is known.
    """
    devices = visible_devices(cards, access)
    chosen: Gpu | None = None
    if len(devices) == 1:
        chosen = devices[0]
    elif access.local_rank < len(devices):
        chosen = devices[access.local_rank]
    opened = [card.gpu for card in cards if card.gpu.minor in access.minors]
    agreed = chosen and any(gpu.uuid == chosen.uuid for gpu in opened)
    if not opened or agreed:
        return chosen
    return opened[0] if len(opened) == 1 else None


def visible_devices(cards: Sequence[Card], access: Access) -> tuple[Gpu, ...]:
    """Return what CUDA shows a rank as devices 0, 1, …; empty where that is not known.

    Numbers count by PCI address only if CUDA was told so, or if all GPUs are alike: by
    default the fastest comes first, which nothing here can tell. An invalid entry hides
    all that follow; a repeated one makes CUDA refuse the list. Of MIG devices CUDA
    shows a process one.

    Source: https://docs.nvidia.com/cuda/cuda-c-programming-guide/ (environment
    variables) and https://docs.nvidia.com/datacenter/tesla/mig-user-guide/
    """
    alike = len({card.gpu.name for card in cards}) == 1
    by_number = sorted(cards, key=_bus) if alike or access.order == _BY_BUS else []
    if access.visible is None:
        return _alone(_whole(card) for card in by_number)
    found: list[Gpu] = []
    for entry in access.visible.split(","):
        device = _entry(cards, by_number, entry.strip())
        if device is None:
            break
        if device in found:
            return ()
        found.append(device)
    return _alone(found)


def _bus(card: Card) -> tuple[int, str]:
    return len(card.gpu.pci), card.gpu.pci


def _alone(found: Iterable[Gpu]) -> tuple[Gpu, ...]:
    """Return devices as CUDA does: beside a MIG device it shows no other."""
    devices = tuple(found)
    if not any(device.mig for device in devices):
        return devices
    # With a whole GPU first, it is nowhere told what becomes of the others.
    return devices[:1] if devices[0].mig else ()


def _whole(card: Card) -> Gpu:
    """Return what is used of a GPU that is asked for as a whole."""
    return card.gpu._replace(mig=card.slices[0].uuid) if card.slices else card.gpu


def _entry(cards: Sequence[Card], by_number: Sequence[Card], entry: str) -> Gpu | None:
    """Return what an entry of CUDA_VISIBLE_DEVICES means; None for an invalid one."""
    if entry.startswith(_SLICE):
        return _only(_slices(cards, entry))
    if entry.startswith(_WHOLE):
        return _only(_whole(c) for c in cards if c.gpu.uuid.startswith(entry))
    short = entry.isascii() and entry.isdecimal() and len(entry) <= _INDEX_MAX_DIGITS
    if not short or int(entry) >= len(by_number):
        return None
    return _whole(by_number[int(entry)])


def _slices(cards: Sequence[Card], entry: str) -> list[Gpu]:
    """Return the MIG devices of that name, in its new form or in that before R470."""
    found = [
        card.gpu._replace(mig=one.uuid)
        for card in cards
        for one in card.slices
        if one.uuid.startswith(entry)
    ]
    parts = entry.removeprefix(_SLICE).split("/")
    if found or not entry.startswith(_OLD_SLICE) or len(parts) != _PARTS:
        return found
    return [
        card.gpu._replace(mig=one.uuid)
        for card in cards
        for one in card.slices
        if [card.gpu.uuid, str(one.gpu_instance), str(one.compute_instance)] == parts
    ]


def _only(found: Iterable[Gpu]) -> Gpu | None:
    """Return the one that an abbreviation means; None if it means none, or several."""
    devices = list(found)
    return devices[0] if len(devices) == 1 else None
