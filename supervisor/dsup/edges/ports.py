"""The node's InfiniBand and RoCE ports: state and error counters, before and after.

A port that goes down often leaves no line in the kernel log, so sysfs is looked at. A
counter there may ask the adapter's firmware, which can hang: an aide reads them.

Source: https://docs.kernel.org/admin-guide/abi-stable.html (sysfs-class-infiniband)
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any, Final, TypeAlias

from dsup.core.printable import printable
from dsup.facts.hardware import PortChange
from dsup.linux.proc import read_bytes

Ports: TypeAlias = dict[str, dict[str, str]]
"""Values by name, of each ``DEVICE/PORT``."""

_DEVICES: Final = "/sys/class/infiniband"
_COUNTERS: Final = (
    "link_downed",
    "link_error_recovery",
    "symbol_error",
    "local_link_integrity_errors",
    "excessive_buffer_overrun_errors",
    "port_rcv_errors",
    "port_rcv_remote_physical_errors",
    "port_xmit_discards",
)
_HARDWARE_COUNTERS: Final = (
    "local_ack_timeout_err",
    "packet_seq_err",
    "out_of_sequence",
    "rnr_nak_retry_err",
    "req_transport_retries_exceeded",
)
_FOLDERS: Final = ((".", ("state", "phys_state")), ("counters", _COUNTERS))
_STATES: Final = {"state": "ACTIVE", "phys_state": "LinkUp"}
_BREAKS: Final = frozenset({"link_downed", "req_transport_retries_exceeded"})
_PORTS_MAX: Final = 64
_VALUE_MAX_CHARS: Final = 32
_GONE: Final = "gone"


def are_there(root: str = "") -> bool:
    """Return whether the node has such ports; never waits.

    Args:
        root: stands for ``/``.
    """
    return os.path.isdir(f"{root}{_DEVICES}")


def read(root: str = "") -> bytes:
    """Read every port; in an aide. Returns an answer for ``decode``."""
    found = {
        f"{device}/{port}": _values(f"{root}{_DEVICES}/{device}/ports/{port}")
        for device, port in _ports(root)
    }
    return json.dumps(found).encode()


def decode(answer: bytes) -> Ports | None:
    """Return what an aide has read; None if it gave no answer."""
    try:
        told = json.loads(answer)
    except ValueError:
        return None
    return {
        str(name): {str(key): str(value) for key, value in values.items()}
        for name, values in told.items()
    }


def changes(before: Ports | None, after: Ports | None) -> tuple[PortChange, ...]:
    """Return what became different; nothing where one of the two is not known."""
    if before is None or after is None:
        return ()
    return tuple(
        change
        for name, values in before.items()
        for change in _changes(name, values, after.get(name))
    )


def _ports(root: str) -> Iterator[tuple[str, str]]:
    count = 0
    for device in _listed(f"{root}{_DEVICES}"):
        for port in _listed(f"{root}{_DEVICES}/{device}/ports"):
            count += 1
            if port.isdecimal() and count <= _PORTS_MAX:
                yield device, port


def _listed(directory: str) -> list[str]:
    try:
        return sorted(os.listdir(directory))
    except OSError:
        return []


def _values(directory: str) -> dict[str, str]:
    """Return a port's values; what it does not have, or does not tell, is absent."""
    folders = (*_FOLDERS, ("hw_counters", _HARDWARE_COUNTERS))
    found: dict[str, str] = {}
    for folder, names in folders:
        for name in names:
            raw = read_bytes(f"{directory}/{folder}/{name}")[:_VALUE_MAX_CHARS]
            # A state reads "4: ACTIVE".
            text = raw.decode(errors="replace").rpartition(":")[2].strip()
            if text:
                found[name] = printable(text)
    return found


def _changes(
    name: str, before: dict[str, str], after: dict[str, str] | None
) -> Iterator[PortChange]:
    device, _, port = name.rpartition("/")
    if after is None:
        was = before.get("state", "")
        bad = was == _STATES["state"]
        yield PortChange(device, int(port), "state", was, _GONE, bad)
        return
    for what, then in before.items():
        now = after.get(what, then)
        if now == then:
            continue
        if what in _STATES:
            bad = then == _STATES[what]
        elif _risen(then, now):
            bad = what in _BREAKS
        else:
            continue  # it was set to zero
        yield PortChange(device, int(port), what, then, now, bad)


def _risen(then: str, now: str) -> bool:
    numbers: list[Any] = [int(text) for text in (then, now) if text.isdecimal()]
    return len(numbers) == 2 and numbers[1] > numbers[0]  # noqa: PLR2004 (both)
