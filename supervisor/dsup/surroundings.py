"""What a run's surroundings may do to it, and nobody would guess: said at its start."""

from __future__ import annotations

import os
from collections.abc import Iterator


def remarks(root: str = "") -> Iterator[str]:
    """Yield what is to be said once, when the ranks run; only /proc and /sys are read.

    Args:
        root: stands for ``/``.
    """
    from dsup.linux import cgroup

    told = cgroup.membership(os.getpid(), root)
    own = cgroup.groups(told, cgroup.mounts(root)).memory
    path = cgroup.killed_as_one(own)
    if path:
        yield (
            "an OOM kill of one rank will take dsup and all ranks with it, because "
            f"{path} is 1 (OOMPolicy=continue; in Kubernetes singleProcessOOMKill)"
        )
