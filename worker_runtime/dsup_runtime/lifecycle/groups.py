"""The end of the process groups, which must not become a wait of its own.

A destroyed gloo group lives on for as long as anything refers to it, a
DistributedDataParallel model or a work in flight: its connections stay open, and the
peers wait for this rank until their own time is over. Where a rank fails, its
connections are therefore closed first. Gloo closes all of a group's when a receive
passes its limit, so one is begun that nobody will ever answer.

Whoever lets go of a gloo group last joins its threads. DistributedDataParallel's
reducer does so with the GIL held, which a thread may wait for that still has a tensor
of a past collective: the rank then hangs at its end, or aborts (torch issue 56297 is of
that kind). Where a rank ends well, models in cycles that nothing refers to, as a
trainer's are, therefore go first. One that the script still holds cannot.
"""

from __future__ import annotations

import gc
import sys
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from dsup_runtime import side_group
from dsup_runtime.bounded import BoundedCall

if TYPE_CHECKING:
    import torch.distributed as dist

DESTROY_MAX_S = 5.0

_NOBODYS_TAG: Final = 0x64737570
_AT_ONCE: Final = timedelta(milliseconds=1)


def destroy(limit_s: float = DESTROY_MAX_S) -> BaseException | None:
    """Destroy every process group of this rank.

    Args:
        limit_s: how long to wait for it, seconds; a thread goes on with it after that.

    Returns:
        Why it did not succeed; None if it did, or there was nothing to destroy.
    """
    return _bounded(limit_s, cut=False)


def cut_off(limit_s: float = DESTROY_MAX_S) -> BaseException | None:
    """Destroy every process group so that the peers notice at once; as ``destroy``."""
    return _bounded(limit_s, cut=True)


def _bounded(limit_s: float, *, cut: bool) -> BaseException | None:
    dist = sys.modules.get("torch.distributed")
    if dist is None or not dist.is_available() or not dist.is_initialized():
        return None

    def end() -> None:
        if cut:
            for group in list(dist.distributed_c10d._world.pg_map):  # noqa: SLF001
                with suppress(Exception):  # its backend has no receive on the CPU
                    _close(group)
        else:
            side_group.let_go()
            gc.collect()
        dist.destroy_process_group()

    call = BoundedCall(end, name="dsup-destroy")
    if call.ended_within(limit_s):
        return call.error
    return TimeoutError(
        f"cannot destroy the process groups within {limit_s:.1f} s, because work on"
        " them is in flight (they go with the process)"
    )


def _close(group: dist.ProcessGroup) -> None:
    """Close a gloo group's connections, whoever refers to it."""
    import torch
    import torch.distributed as dist

    others = set(dist.get_process_group_ranks(group)) - {dist.get_rank()}
    if others:
        work = dist.irecv(
            torch.empty(1), src=min(others), group=group, tag=_NOBODYS_TAG
        )
        if work is not None:
            work.wait(_AT_ONCE)
