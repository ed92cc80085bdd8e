"""A cgroup of version 2 whose processes are told apart by cgroups below it.

All of this is a few writes to cgroupfs. Most take microseconds; moving a process may
take some ten milliseconds, because the kernel first waits for every processor.

Source: https://docs.kernel.org/admin-guide/cgroup-v2.html
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from typing import Final

from dsup.linux.proc import read_bytes

CONTROLLERS: Final = ("memory", "pids")
"""What is counted for each part, where the kernel has it to give."""

_DELEGATED: Final = ("user.delegate", "trusted.delegate")


def is_root(directory: str) -> bool:
    """Return whether it is the cgroup of the whole node, which has no events."""
    return not os.path.exists(f"{directory}/cgroup.events")


def is_writable(directory: str) -> bool:
    """Return whether this process may divide it, and move its processes."""
    names = ("", "/cgroup.procs", "/cgroup.subtree_control")
    return all(os.access(directory + name, os.W_OK) for name in names)


def is_delegated(directory: str) -> bool:
    """Return whether systemd says that it is another's to divide.

    Before systemd 251 only root can read it. Then the owner tells: systemd gives the
    cgroup of a service with Delegate=yes to the service's user, and none above it.
    """
    for name in _DELEGATED:
        with contextlib.suppress(OSError):
            return os.getxattr(directory, name) == b"1"
    user = os.geteuid()
    with contextlib.suppress(OSError):
        own, above = os.stat(directory), os.stat(os.path.dirname(directory))
        return user != 0 and own.st_uid == user != above.st_uid
    return False


def pids(directory: str) -> list[int]:
    """Return who lives in it; 0 stands for a process of another pid namespace."""
    return [int(pid) for pid in read_bytes(f"{directory}/cgroup.procs").split()]


def parts(directory: str) -> list[str]:
    """Return the names of the cgroups right below it."""
    try:
        with os.scandir(directory) as found:
            return [entry.name for entry in found if entry.is_dir()]
    except OSError:
        return []


def enter(directory: str, pid: int) -> bool:
    """Move a process; return whether it lives there now."""
    return _write(f"{directory}/cgroup.procs", str(pid))


def enable(directory: str) -> tuple[str, ...]:
    """Have all below it counted apart; return which controllers do.

    Nobody may live in the cgroup itself.
    """
    for name in CONTROLLERS:
        _write(f"{directory}/cgroup.subtree_control", f"+{name}")
    told = read_bytes(f"{directory}/cgroup.subtree_control").split()
    return tuple(name for name in CONTROLLERS if name.encode() in told)


def disable(directory: str) -> None:
    """Take ``enable`` back: only then may somebody live in the cgroup itself."""
    for name in CONTROLLERS:
        _write(f"{directory}/cgroup.subtree_control", f"-{name}")


def kill(directories: Iterable[str]) -> None:
    """Send SIGKILL to all that live there or below; nothing before Linux 5.14."""
    for directory in directories:
        _write(f"{directory}/cgroup.kill", "1")


def remove(directories: Iterable[str]) -> list[str]:
    """Remove cgroups; return those where somebody still lives."""
    left = []
    for directory in directories:
        try:
            os.rmdir(directory)
        except FileNotFoundError:
            continue
        except OSError:
            left.append(directory)
    return left


def _write(path: str, text: str) -> bool:
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        os.write(fd, text.encode())
    except OSError:
        return False
    finally:
        os.close(fd)
    return True
