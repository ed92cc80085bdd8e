"""What NVIDIA's driver tells without NVML: files of /proc and open device nodes.

``/proc/driver/nvidia`` is the driver's own and may wait for a lock of it, so only a
process that may hang reads it. Which device nodes a process has open the kernel tells,
and never waits.

Source: https://download.nvidia.com/XFree86/Linux-x86_64/ (README)
"""

from __future__ import annotations

import os
from typing import Final, NamedTuple

from dsup.linux.proc import read_bytes

_GPUS: Final = "/proc/driver/nvidia/gpus"
_CONTROL: Final = "/dev/nvidiactl"
_NODE: Final = "/dev/nvidia"
_GPUS_MAX: Final = 64
_FILE_MAX_BYTES: Final = 4096
_DESCRIPTORS_MAX: Final = 4096
_MINOR_MAX_DIGITS: Final = 4
_BUS_CHARS: Final = len("0000:3b:00.0")
_IDENTITY_BYTES: Final = 4


class Board(NamedTuple):
    """A GPU as the driver lists it.

    Attributes:
        bus: name of its directory, such as ``0000:3b:00.0``.
        uuid: empty if unknown; the driver has ``?`` in it before the first use.
        minor: N of ``/dev/nvidiaN``; None if unknown.
        model: empty if unknown.
    """

    bus: str
    uuid: str
    minor: int | None
    model: str


def is_present(root: str = "") -> bool:
    """Return whether the node looks as if it had an NVIDIA GPU; never waits."""
    return os.path.exists(f"{root}{_CONTROL}") or os.path.isdir(f"{root}{_GPUS}")


def boards(root: str = "") -> list[Board]:
    """Return the driver's list of GPUs, by PCI address; it may wait for the driver.

    Args:
        root: stands for ``/``.
    """
    try:
        names = sorted(os.listdir(f"{root}{_GPUS}"))[:_GPUS_MAX]
    except OSError:
        return []
    return [_board(name, f"{root}{_GPUS}/{name}/information") for name in names]


def is_on_bus(address: str, root: str = "") -> bool:
    """Return whether a PCI device is there and answers; it may wait for the bus.

    One that has fallen off reads as all ones.

    Args:
        address: in any form, such as ``00000000:3B:00.0``.
        root: stands for ``/``.
    """
    bus = address.lower()[-_BUS_CHARS:]
    path = f"{root}/sys/bus/pci/devices/{bus}/config"
    identity = read_bytes(path)[:_IDENTITY_BYTES]
    return len(identity) == _IDENTITY_BYTES and identity != b"\xff" * _IDENTITY_BYTES


def open_minors(pid: int, root: str = "") -> frozenset[int]:
    """Return N of each ``/dev/nvidiaN`` that a process has open.

    Args:
        pid: a process of the same user, or any where one is root.
        root: stands for ``/``.
    """
    directory = f"{root}/proc/{pid}/fd"
    try:
        descriptors = os.listdir(directory)[:_DESCRIPTORS_MAX]
    except OSError:
        return frozenset()
    found = (_minor(f"{directory}/{fd}") for fd in descriptors)
    return frozenset(minor for minor in found if minor is not None)


def _minor(link: str) -> int | None:
    try:
        target = os.readlink(link)
    except OSError:
        return None
    if not target.startswith(_NODE):
        return None
    return _number(target[len(_NODE) :])


def _board(bus: str, path: str) -> Board:
    text = read_bytes(path)[:_FILE_MAX_BYTES].decode("utf-8", "replace")
    pairs = (line.partition(":") for line in text.splitlines())
    told = {name.strip(): value.strip() for name, _, value in pairs}
    uuid = told.get("GPU UUID", "")
    return Board(
        bus=bus,
        uuid="" if "?" in uuid else uuid,
        minor=_number(told.get("Device Minor", "")),
        model=told.get("Model", ""),
    )


def _number(text: str) -> int | None:
    known = text.isascii() and text.isdecimal() and len(text) <= _MINOR_MAX_DIGITS
    return int(text) if known else None
