"""A real out-of-memory kill that can hurt nobody else.

The process moves into a memory cgroup that it makes for itself, with a small limit, and
allocates until the kernel kills it there. Unless it is proven to be inside, it does not
allocate at all.

Source: https://docs.kernel.org/admin-guide/cgroup-v1/memory.html and
https://docs.kernel.org/admin-guide/cgroup-v2.html#memory
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path, PurePosixPath
from typing import NamedTuple, NoReturn

CGROUP_ROOT = Path("/sys/fs/cgroup")

_PREFIX = "dsup-fault-"
_MIB = 1 << 20
# What the process already holds stays charged to its old group, in both versions, so
# this is 256 MiB above its present size.
_LIMIT_BYTES = 256 * _MIB
_CHUNK_BYTES = 4 * _MIB
_OWN_CGROUPS = Path("/proc/self/cgroup")


class OomRefusedError(RuntimeError):
    """The kill cannot be had; outside of a cgroup of its own nothing was allocated."""

    def __init__(self, why: str) -> None:
        self.why = why
        super().__init__(
            f"cannot inject an out-of-memory kill, because {why} (run as root where"
            " cgroups are writable, or inject the fault kill instead)"
        )


class _Controller(NamedTuple):
    """Where a version of cgroups keeps memory groups, and how it limits one.

    ``no_swap`` is a file and what it must hold so that swap space does not postpone
    the kill.
    """

    mount: str
    limit_file: str
    no_swap: tuple[str, str]


_V1 = _Controller(
    "memory",
    "memory.limit_in_bytes",
    ("memory.memsw.limit_in_bytes", str(_LIMIT_BYTES)),
)
_V2 = _Controller("", "memory.max", ("memory.swap.max", "0"))


def die(root: Path = CGROUP_ROOT) -> NoReturn:
    """Have the kernel kill this process for the memory it uses.

    Args:
        root: where the cgroup file systems are mounted.

    Raises:
        OomRefusedError: if no cgroup can be made, or the kernel does not kill.
    """
    enter(root)
    exhaust()


def enter(root: Path = CGROUP_ROOT) -> None:
    """Move this process into a memory cgroup of its own, with a small limit.

    Args:
        root: where the cgroup file systems are mounted.

    Raises:
        OomRefusedError: if that cannot be had; the process is where it was.
    """
    group = _enter_new_group(root)
    if _own_group()[1].name != group.name:
        why = f"{group} did not take this process in"
        raise OomRefusedError(why)


def exhaust() -> NoReturn:
    """Allocate until the kernel kills; only after ``enter``.

    Raises:
        OomRefusedError: if the kernel does not kill.
    """
    held = []
    for _ in range(2 * _LIMIT_BYTES // _CHUNK_BYTES):
        held.append(b"\xff" * _CHUNK_BYTES)  # noqa: PERF401  any item may be the last
    why = "the kernel lets this process exceed its limit"
    raise OomRefusedError(why)


def remove_dead_groups(root: Path = CGROUP_ROOT) -> None:
    """Remove the groups of processes that died in them; the dead cannot do it."""
    with contextlib.suppress(OSError, OomRefusedError):
        controller, own = _own_group()
        for parent in _parents(root, controller, own):
            for group in parent.glob(f"{_PREFIX}*"):
                if not Path("/proc", group.name.removeprefix(_PREFIX)).exists():
                    _remove(group)


def _own_group() -> tuple[_Controller, PurePosixPath]:
    """Return the controller in use and the path of this process's group in it."""
    table = os.fsdecode(_OWN_CGROUPS.read_bytes())
    rows = [line.split(":", 2) for line in table.splitlines()]
    for _, controllers, path in rows:
        if "memory" in controllers.split(","):
            return _V1, PurePosixPath(path)
    for number, _, path in rows:
        if number == "0":
            return _V2, PurePosixPath(path)
    why = "this kernel has no memory cgroups"
    raise OomRefusedError(why)


def _parents(
    root: Path, controller: _Controller, own: PurePosixPath
) -> tuple[Path, ...]:
    """Return where a group can be made: below one's own group, else beside it.

    Version 2 does not limit the children of a group that has processes of its own.
    """
    top = root / controller.mount
    below = own.relative_to("/")
    return tuple(dict.fromkeys((top / below, top / below.parent)))


def _enter_new_group(root: Path) -> Path:
    """Make a limited group, move this process into it, and return its directory."""
    controller, own = _own_group()
    failures = []
    for parent in _parents(root, controller, own):
        group = parent / f"{_PREFIX}{os.getpid()}"
        try:
            group.mkdir()
            _limit(group, controller)
            _write(group / "cgroup.procs", str(os.getpid()))
        except OSError as error:
            failures.append(f"{group}: {error.strerror}")
            _remove(group)
        else:
            return group
    why = f"no memory cgroup can be made: {'; '.join(failures)}"
    raise OomRefusedError(why)


def _limit(group: Path, controller: _Controller) -> None:
    _write(group / controller.limit_file, str(_LIMIT_BYTES))
    file, value = controller.no_swap
    with contextlib.suppress(OSError):  # absent where the kernel does not count swap
        _write(group / file, value)


def _write(path: Path, value: str) -> None:
    # Without O_CREAT: in a plain directory, which limits nothing, this must fail.
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, value.encode())
    finally:
        os.close(fd)


def _remove(group: Path) -> None:
    with contextlib.suppress(OSError):
        group.rmdir()
