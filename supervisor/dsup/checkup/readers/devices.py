"""The driver without NVML, who has GPUs open, network ports and interfaces."""

from __future__ import annotations

import os
import socket
from typing import Final

from dsup.checkup.readers.still import WATCH_S, stuck
from dsup.checkup.readings import Driver, Holders, Network
from dsup.core.errors import SpecError
from dsup.core.printable import printable
from dsup.edges import port, ports
from dsup.linux import nvidia, proc
from dsup.linux.proc import read_text

_BUS: Final = "/sys/bus/pci/devices"
_NVIDIA: Final = "0x10de"
_DISPLAY: Final = "0x03"
_STRANGERS: Final = frozenset({"nouveau", "vfio-pci", "pci-stub", "xen-pciback"})
"""Drivers that somebody gave a GPU to: it shows pictures, or is a virtual machine's."""

_SWITCHES: Final = "/proc/driver/nvidia-nvswitch/devices"
_VERSION: Final = "/proc/driver/nvidia/version"
_MANAGER: Final = "nv-fabricmanager"
_PERSISTENCED: Final = "nvidia-persistenced"
_STATES: Final = ("state", "phys_state")
_COMM_CHARS: Final = 15
_HOLDERS_MAX: Final = 64
_INTERFACES_MAX: Final = 256


def driver(root: str = "") -> Driver:
    """Return what there is of NVIDIA's driver; it may wait for the driver."""
    names = {read_text(f"{root}/proc/{pid}/comm").strip() for pid in _pids(root)}
    return Driver(
        present=nvidia.is_present(root),
        on_bus=sum(_is_gpu(f"{root}{_BUS}/{name}") for name in _listed(root + _BUS)),
        version=_version(read_text(f"{root}{_VERSION}")),
        switches=len(_listed(f"{root}{_SWITCHES}")),
        fabric_manager=_MANAGER[:_COMM_CHARS] in names,
        persistenced=_PERSISTENCED[:_COMM_CHARS] in names,
        all_seen=bool(read_text(f"{root}/proc/1/comm"))
        and (bool(root) or proc.in_initial_namespace()),
    )


def holders(root: str = "", watch_s: float = WATCH_S) -> Holders:
    """Return the processes that have a GPU open, other than this one's own.

    Args:
        root: stands for ``/``.
        watch_s: how long those in state D are watched.
    """
    rows: list[tuple[int, str, str, list[int]]] = []
    seen = True
    for pid in _pids(root):
        try:
            os.listdir(f"{root}/proc/{pid}/fd")
        except PermissionError:
            seen = False
            continue
        except OSError:
            continue
        minors = sorted(nvidia.open_minors(pid, root))
        if minors and len(rows) < _HOLDERS_MAX:
            name, state = _name_and_state(pid, root)
            rows.append((pid, name, state, minors))
    return Holders(rows, seen, stuck([row[0] for row in rows], root, watch_s))


def network(master_port: int, root: str = "") -> Network:
    """Return ports and interfaces; it may wait for an adapter."""
    found = {
        name: {str(key): told[key] for key in _STATES if key in told}
        for name, told in (ports.decode(ports.read(root)) or {}).items()
    }
    names = [printable(name) for name in _interfaces(root)]
    return Network(found, names[:_INTERFACES_MAX], _port_error(master_port))


def _interfaces(root: str) -> list[str]:
    """Return names; /sys may be that of another network namespace."""
    names = set(_listed(f"{root}/sys/class/net"))
    if not root:
        names |= {name for _, name in socket.if_nameindex()}
    return sorted(names)


def _pids(root: str) -> list[int]:
    return [int(name) for name in _listed(f"{root}/proc") if name.isdecimal()]


def _listed(directory: str) -> list[str]:
    try:
        return sorted(os.listdir(directory))
    except OSError:
        return []


def _is_gpu(path: str) -> bool:
    if read_text(f"{path}/vendor").strip() != _NVIDIA:
        return False
    if os.path.basename(os.path.realpath(f"{path}/driver")) in _STRANGERS:
        return False
    return read_text(f"{path}/class").startswith(_DISPLAY)


def _version(text: str) -> str:
    """Return the module's version: the first word that is numbers with two dots."""
    for word in text.partition("\n")[0].split():
        parts = word.split(".")
        if len(parts) > 1 and all(part.isdecimal() for part in parts):
            return word
    return ""


def _name_and_state(pid: int, root: str) -> tuple[str, str]:
    text = read_text(f"{root}/proc/{pid}/stat")
    name, _, rest = text.partition("(")[2].rpartition(")")
    return printable(name), "".join(rest.split()[:1])


def _port_error(number: int) -> str:
    if not number:
        return ""
    try:
        port.hold(number).close()
    except SpecError as error:
        return str(error)
    return ""
