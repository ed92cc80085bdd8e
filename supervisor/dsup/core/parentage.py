"""Where a launch comes from: what it has in common with the one before it. Pure."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from typing import Final, NamedTuple

_SYSTEMD: Final = ("", "name=systemd")
"""The controllers of the hierarchies that systemd names after its units."""


class Parentage(NamedTuple):
    """Where a launch comes from; two launches with the same one are of one job.

    Attributes:
        parent: who launches it again, such as ``slurm job 17``, ``pod train-0`` or
            ``unit train.service``; empty for a person.
        script: its absolute path; the name of a module or program.
        directory: the working directory, absolute.
    """

    parent: str = ""
    script: str = ""
    directory: str = ""


def parent_of(environment: Mapping[str, str], cgroups: str, host: str) -> str:
    """Return who launches a job again when dsup is gone; empty for nobody.

    Args:
        environment: what dsup was started with.
        cgroups: what /proc/self/cgroup says.
        host: the node's name, which in a pod is the pod's.
    """
    job = environment.get("SLURM_JOB_ID", "")
    if job:
        return f"slurm job {job}"
    if environment.get("KUBERNETES_SERVICE_HOST"):
        return f"pod {host}"
    unit = next(filter(None, map(_unit, cgroups.splitlines())), "")
    return f"unit {unit}" if unit else ""


def _unit(line: str) -> str:
    """Return the service that a line of /proc/PID/cgroup names; empty for none.

    The innermost unit counts: a session's scope, or a service manager's own service,
    is where people work. Below a unit there may be cgroups that are none.
    """
    _, _, rest = line.partition(":")
    controllers, _, path = rest.partition(":")
    if controllers not in _SYSTEMD:
        return ""
    units = [p for p in path.split("/") if p.endswith((".service", ".scope"))]
    last = units[-1] if units else ""
    return last if last.endswith(".service") and not last.startswith("user@") else ""


def script_of(words: Mapping[str, object], directory: str) -> str:
    """Return what is run, so that the same is called the same.

    Args:
        words: the options ``script``, ``module``, ``no_python`` and ``run_path``.
        directory: the working directory.
    """
    script = str(words["script"])
    named = words["module"] or (words["no_python"] and "/" not in script)
    if named and not words["run_path"]:
        return script
    return posixpath.normpath(posixpath.join(directory, script))
