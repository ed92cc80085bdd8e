"""Where the GPUs and processors of this node are, as sysfs tells."""

from __future__ import annotations

import os
import re
from typing import Final, NamedTuple

_VENDORS: Final = {"0x10de": ("0x0300", "0x0302"), "0x1002": ("0x0380", "0x1200")}
"""PCI vendor, and the classes (without interface) of its devices that compute."""

_READ_MAX: Final = 65_536
_NVIDIA: Final = re.compile(r"nvidia[0-9]+")
_HAS_SIMDS: Final = re.compile(r"^simd_count [1-9]", re.MULTILINE)


class Processor(NamedTuple):
    """What sysfs says of a processor; lists are as the kernel writes them.

    Attributes:
        socket: its physical package.
        core: the processors of its physical core.
        cache: the processors that share its last level of cache.
    """

    socket: str
    core: str
    cache: str


def device_count(root: str = "/") -> int:
    """Return how many GPUs the drivers offer: NVIDIA's, else AMD's."""
    found = sum(
        1 for name in _listed(os.path.join(root, "dev")) if _NVIDIA.fullmatch(name)
    )
    nodes = os.path.join(root, "sys/class/kfd/kfd/topology/nodes")
    # A node without SIMD units is a processor.
    return found or sum(
        1
        for name in _listed(nodes)
        if _HAS_SIMDS.search(_read(f"{nodes}/{name}/properties"))
    )


def gpus(root: str = "/") -> list[str]:
    """Return the PCI addresses of the GPUs, in the order of their devices."""
    where = os.path.join(root, "sys/bus/pci/devices")
    return sorted(
        address for address in _listed(where) if _computes(f"{where}/{address}")
    )


def gpu_uuid(address: str, root: str = "/") -> str:
    """Return the UUID of an NVIDIA GPU; empty where its driver does not tell."""
    path = os.path.join(root, "proc/driver/nvidia/gpus", address, "information")
    for line in _read(path).splitlines():
        name, _, value = line.partition(":")
        if name == "GPU UUID":
            return value.strip()
    return ""


def numa_node(address: str, root: str = "/") -> int:
    """Return the NUMA node of a PCI device; 0 where there is but one."""
    text = _read(os.path.join(root, "sys/bus/pci/devices", address, "numa_node"))
    return max(0, int(text or 0))


def numa_nodes(root: str = "/") -> dict[int, str]:
    """Return the list of processors of each NUMA node."""
    where = os.path.join(root, "sys/devices/system/node")
    names = [name for name in _listed(where) if name[4:].isdigit()]
    return {int(name[4:]): _read(f"{where}/{name}/cpulist") for name in names}


def processor(number: int, root: str = "/") -> Processor:
    """Return what is known of a processor; itself alone where nothing is."""
    where = os.path.join(root, f"sys/devices/system/cpu/cpu{number}")
    core = _read(f"{where}/topology/thread_siblings_list")
    socket = _read(f"{where}/topology/physical_package_id")
    return Processor(socket or "0", core or str(number), _cache(where) or str(number))


def _cache(where: str) -> str:
    levels = {}
    for name in _listed(f"{where}/cache"):
        cache = f"{where}/cache/{name}"
        if _read(f"{cache}/type") in {"Unified", "Data"}:
            levels[int(_read(f"{cache}/level") or 0)] = _read(
                f"{cache}/shared_cpu_list"
            )
    return levels[max(levels)] if levels else ""


def _computes(device: str) -> bool:
    classes = _VENDORS.get(_read(f"{device}/vendor"), ())
    return _read(f"{device}/class")[:6] in classes


def _listed(path: str) -> list[str]:
    try:
        return os.listdir(path)
    except OSError:
        return []


def _read(path: str) -> str:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read(_READ_MAX).strip()
    except OSError:
        return ""
