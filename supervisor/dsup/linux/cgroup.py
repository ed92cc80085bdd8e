"""The memory and pids cgroups of a process: counters, limits, pressure.

Three layouts are known: version 1 with a hierarchy a controller, version 2 with one for
all, and both side by side. Where a hierarchy is mounted, and from which cgroup down, is
what mountinfo says, so a container's view serves as well. Whatever cannot be read is
absent; only the kernel's own file systems are read, and they never block.

Source: https://docs.kernel.org/admin-guide/cgroup-v2.html and
https://docs.kernel.org/admin-guide/cgroup-v1/memory.html
"""

from __future__ import annotations

import os
from typing import Final, NamedTuple, TypeAlias

from dsup.linux.proc import read_bytes

Key: TypeAlias = tuple[str, str]
"""Path of a file, and name of a counter in it."""

VMSTAT: Final = "vmstat_oom_kill"

_OOM_NAMES: Final = ("oom", "oom_kill", "oom_group_kill")
_DELETED: Final = " (deleted)"
_UNLIMITED: Final = 1 << 62  # version 1 writes the highest multiple of a page


class Mount(NamedTuple):
    """A place where a hierarchy is mounted.

    Attributes:
        controllers: of version 1; empty for version 2.
        top: the cgroup seen at the mount point.
        directory: the mount point.
    """

    controllers: frozenset[str]
    top: str
    directory: str


class Group(NamedTuple):
    """A cgroup that a process lives in.

    Attributes:
        name: as /proc/PID/cgroup names it.
        chain: its directory, then those above it, as far as they are mounted.
        unified: it is of version 2.
    """

    name: str
    chain: tuple[str, ...]
    unified: bool


class Groups(NamedTuple):
    """The cgroups of a process; None where there is none, or none to be seen.

    Attributes:
        unified: of version 2, whichever controllers it has: it tells the pressure.
    """

    memory: Group | None = None
    pids: Group | None = None
    unified: Group | None = None


class Memory(NamedTuple):
    """Memory of a cgroup, bytes; None where there is no limit, or no number.

    Attributes:
        limit_bytes: the lowest limit of the cgroup and of those above it.
        current_bytes: in use now, page cache included.
        peak_bytes: the most that ever was.
    """

    limit_bytes: int | None = None
    current_bytes: int | None = None
    peak_bytes: int | None = None


def mounts(root: str = "") -> tuple[Mount, ...]:
    """Return where cgroups are mounted for this process.

    Args:
        root: stands for ``/`` wherever a path is read.
    """
    lines = read_bytes(f"{root}/proc/self/mountinfo").splitlines()
    found = (_mount(line, root) for line in lines if b" - cgroup" in line)
    return tuple(mount for mount in found if mount)


def membership(pid: int, root: str = "") -> bytes:
    """Return what /proc/PID/cgroup says.

    Of a process that is exiting, version 1 says ``/`` whatever was true before; version
    2 keeps saying the truth until it is reaped.
    """
    return read_bytes(f"{root}/proc/{pid}/cgroup")


def groups(told: bytes, table: tuple[Mount, ...]) -> Groups:
    """Return the cgroups that a membership means.

    Args:
        told: from ``membership``.
        table: from ``mounts``.
    """
    names = _names(told)
    unified = _find("", names, table)
    memory = _find("memory", names, table) if "memory" in names else unified
    pids = _find("pids", names, table) if "pids" in names else unified
    return Groups(memory, pids, unified)


def home(controller: str, told: bytes, table: tuple[Mount, ...]) -> Group | None:
    """Return the cgroup of one controller that a membership means.

    Args:
        controller: of version 1; empty for version 2's cgroup.
        told: from ``membership``.
        table: from ``mounts``.
    """
    return _find(controller, _names(told), table)


def counters(living: Groups) -> dict[Key, int]:
    """Return the counters of a process's cgroups: OOM kills and refused forks.

    ``oom_kill`` counts victims that lived in the cgroup, whichever limit was hit: it is
    the authority on whether one of them was killed so. ``oom`` counts how often its own
    limit was, ``oom_group_kill`` (version 2) how often all of it was killed as one.
    ``failcnt`` stands in on kernels without version 1's oom_kill, before 4.13; it rises
    with every reclaim at the limit, and proves nothing. ``pids_max`` counts refused
    forks.
    """
    return _oom(living.memory) | _pids(living.pids)


def vmstat(root: str = "") -> dict[Key, int]:
    """Return the node's count of OOM kills, of every kind and of whoever."""
    path = f"{root}/proc/vmstat"
    values = _flat(read_bytes(path))
    return {(path, VMSTAT): values["oom_kill"]} if "oom_kill" in values else {}


def memory(group: Group) -> Memory:
    """Return how much memory a cgroup may have, has, and had."""
    if group.unified:
        names = "memory.max", "memory.current", "memory.peak"
    else:
        names = (
            "memory.limit_in_bytes",
            "memory.usage_in_bytes",
            "memory.max_usage_in_bytes",
        )
    limits = [_number(f"{directory}/{names[0]}") for directory in group.chain]
    set_limits = [limit for limit in limits if limit is not None and limit < _UNLIMITED]
    current, peak = (_number(f"{group.chain[0]}/{name}") for name in names[1:])
    return Memory(min(set_limits, default=None), current, peak)


def killed_as_one(group: Group | None) -> str:
    """Return the file that makes an OOM kill end all of a cgroup; empty for none.

    With memory.oom.group set, in a process's own cgroup or in one above it, the kernel
    kills every process there, and not only the one that it chose.
    """
    for directory in group.chain if group and group.unified else ():
        path = f"{directory}/memory.oom.group"
        if read_bytes(path).strip() == b"1":
            return path
    return ""


def pressure(group: Group | None, root: str = "") -> float | None:
    """Return how long tasks waited for memory lately, percent of the last 10 seconds.

    Args:
        group: a cgroup of version 2; None, or one without the file, for the node.
        root: stands for ``/``.
    """
    chain = group.chain if group else ()
    paths = [f"{directory}/memory.pressure" for directory in chain]
    for path in (*paths, f"{root}/proc/pressure/memory"):
        _, found, rest = read_bytes(path).partition(b"some avg10=")
        if found:
            return float(rest.split()[0])
    return None


def _mount(line: bytes, root: str) -> Mount | None:
    ours, _, theirs = os.fsdecode(line).partition(" - ")
    left, right = ours.split(" "), theirs.split(" ")
    top, directory = _unescape(left[3]), root + _unescape(left[4]).rstrip("/")
    match right[0]:
        case "cgroup2":
            return Mount(frozenset(), top, directory)
        case "cgroup":
            return Mount(frozenset(right[-1].split(",")), top, directory)
        case _:
            return None


def _unescape(field: str) -> str:
    """Return a path of mountinfo, where blanks and backslashes are octal."""
    first, *rest = field.split("\\")
    return first + "".join(chr(int(part[:3], 8)) + part[3:] for part in rest)


def _names(told: bytes) -> dict[str, str]:
    """Return the name of a process's cgroup by controller; "" is version 2's."""
    names = {}
    for line in os.fsdecode(told).splitlines():
        controllers, _, name = line.partition(":")[2].partition(":")
        for controller in controllers.split(","):
            names[controller] = name.removesuffix(_DELETED)
    return names


def _find(
    controller: str, names: dict[str, str], table: tuple[Mount, ...]
) -> Group | None:
    if controller not in names:
        return None
    name = names[controller]
    # A later mount may hide an earlier one.
    for mount in reversed(table):
        ours = controller in mount.controllers if controller else not mount.controllers
        below = _below(name, mount.top) if ours else None
        if below is not None:
            chain = _chain(mount.directory, below)
            if os.path.isdir(chain[0]):
                return Group(name, chain, not controller)
    return None


def _below(name: str, top: str) -> str | None:
    """Return a cgroup's path below the one that is mounted; None if it is not there."""
    if name != top and not name.startswith(f"{top.rstrip('/')}/"):
        return None
    below = name[len(top) :].strip("/")
    return None if below.startswith("..") else below


def _chain(directory: str, below: str) -> tuple[str, ...]:
    parts = below.split("/") if below else []
    return tuple(
        "/".join([directory, *parts[:depth]]) for depth in range(len(parts), -1, -1)
    )


def _oom(group: Group | None) -> dict[Key, int]:
    if group is None:
        return {}
    if not group.unified:
        return _oom_v1(group.chain[0])
    # A cgroup that does not have the controller is charged to the next one that has.
    for directory in group.chain:
        path = f"{directory}/memory.events"
        values = _flat(read_bytes(path))
        if values:
            return {(path, name): values[name] for name in _OOM_NAMES if name in values}
    return {}


def _oom_v1(directory: str) -> dict[Key, int]:
    path = f"{directory}/memory.oom_control"
    values = _flat(read_bytes(path))
    if "oom_kill" in values:
        return {(path, "oom_kill"): values["oom_kill"]}
    path = f"{directory}/memory.failcnt"
    count = _number(path)
    return {} if count is None else {(path, "failcnt"): count}


def _pids(group: Group | None) -> dict[Key, int]:
    """Return counts of refused forks.

    Before Linux 6.11, and always in version 1, the cgroup of the forking process
    counts; since then the one whose limit it is, which may be any above it.
    """
    if group is None:
        return {}
    found = {}
    for directory in group.chain if group.unified else ():
        path = f"{directory}/pids.events.local"
        found[path, "pids_max"] = _flat(read_bytes(path)).get("max")
    path = f"{group.chain[0]}/pids.events"
    if all(count is None for count in found.values()):
        found[path, "pids_max"] = _flat(read_bytes(path)).get("max")
    return {key: count for key, count in found.items() if count is not None}


def _flat(text: bytes) -> dict[str, int]:
    """Return a file of lines that are a name and a number."""
    rows = (line.split() for line in text.splitlines())
    return {
        os.fsdecode(row[0]): int(row[1])
        for row in rows
        if len(row) == 2 and row[1].isdigit()  # noqa: PLR2004 (a name, a number)
    }


def _number(path: str) -> int | None:
    text = read_bytes(path).strip()
    return int(text) if text.isdigit() else None
