"""The cgroups of this process: what they limit, tell and allow.

Source: https://docs.kernel.org/admin-guide/cgroup-v2.html
"""

from __future__ import annotations

from dsup.checkup.readings import Cgroups
from dsup.edges.rank_cgroups import delegation
from dsup.linux import cgroup
from dsup.linux.cgroup import Group
from dsup.linux.proc import read_text


def cgroups(pid: int, root: str = "") -> Cgroups:
    """Return what there is to know of a process's cgroups.

    Args:
        pid: the process.
        root: stands for ``/`` wherever a path is read.
    """
    table = cgroup.mounts(root)
    found = cgroup.groups(cgroup.membership(pid, root), table)
    left, most, where = _pids(found.pids)
    given = delegation(pid, root)
    counted = "memory" in given.controllers
    why_not = given.reason or ("" if counted else "no memory controller was given")
    return Cgroups(
        version=_version(table),
        name=found.memory.name if found.memory else "",
        counted=bool(cgroup.counters(found)),
        oom_group=cgroup.killed_as_one(found.memory),
        pids_left=left,
        pids_max=most,
        pids_where=where,
        memory_limit=cgroup.memory(found.memory).limit_bytes if found.memory else None,
        divisible=not why_not,
        why_not=why_not,
    )


def _version(table: tuple[cgroup.Mount, ...]) -> str:
    older = any(mount.controllers for mount in table)
    unified = any(not mount.controllers for mount in table)
    names = [name for name, there in (("1", older), ("2", unified)) if there]
    return " and ".join(names)


def _pids(group: Group | None) -> tuple[int | None, int | None, str]:
    """Return how many more there may be, and the limit and file that say so."""
    rows = []
    for directory in group.chain if group else ():
        most, now = (
            read_text(f"{directory}/pids.{name}").strip() for name in ("max", "current")
        )
        if most.isdecimal() and now.isdecimal():
            rows.append((int(most) - int(now), int(most), f"{directory}/pids.max"))
    return min(rows, default=(None, None, ""))
