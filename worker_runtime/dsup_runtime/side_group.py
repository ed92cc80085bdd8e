"""The runtime's own process group: small, bounded exchanges of all ranks on the CPU.

A gloo group beside the caller's own is made at the first exchange, so that nothing here
meets the caller's collectives or its GPU. Without a process group, or alone in it, an
exchange is local and no group is ever made. Values travel as JSON: what a rank sends is
never unpickled.

Every function here must be called by all ranks in the same order.
"""

from __future__ import annotations

import json
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from dsup_runtime.errors import PeerError

if TYPE_CHECKING:
    import torch.distributed as dist

Json: TypeAlias = Any

VALUE_MAX_BYTES: Final = 1 << 20
"""Longest JSON a rank may send; a longer one is the caller's bug."""


class _Side:
    """The side group of the process group there is now."""

    __slots__ = ("group", "world")

    def __init__(self) -> None:
        self.world: dist.ProcessGroup | None = None
        self.group: dist.ProcessGroup | None = None

    def of_now(self) -> dist.ProcessGroup:
        import torch.distributed as dist

        if self.group is None or self.world is not dist.group.WORLD:
            self.world = dist.group.WORLD
            self.group = dist.new_group(backend="gloo")
        return self.group


_side = _Side()


def size() -> int:
    """Return how many ranks an exchange reaches: 1 where there is no group."""
    import sys

    dist = sys.modules.get("torch.distributed")
    if dist is None or not dist.is_available() or not dist.is_initialized():
        return 1
    return int(dist.get_world_size())


def reduce_max(numbers: list[int], *, timeout_s: float) -> list[int]:
    """Return the maximum of all ranks, number by number.

    Args:
        numbers: as many on every rank, each in 64 bits.
        timeout_s: how long to wait for the others, seconds.

    Raises:
        PeerError: if a rank does not take part in time, or has gone.
    """
    if size() == 1:
        return list(numbers)
    import torch
    import torch.distributed as dist

    told = torch.tensor(numbers, dtype=torch.int64)
    begin_s = time.monotonic()
    try:
        work = dist.all_reduce(
            told, op=dist.ReduceOp.MAX, group=_side.of_now(), async_op=True
        )
        work.wait(timedelta(seconds=timeout_s))
    except RuntimeError as error:  # gloo knows no other
        raise unreachable(error, time.monotonic() - begin_s) from error
    return [int(number) for number in told.tolist()]


def exchange(value: Json, *, timeout_s: float) -> list[Json]:
    """Return what every rank gave, by rank.

    Args:
        value: anything JSON can hold, at most 1 MiB of it.
        timeout_s: how long to wait for the others, seconds.

    Raises:
        PeerError: if a rank does not take part in time, or has gone.
    """
    data = json.dumps(value).encode()
    if len(data) > VALUE_MAX_BYTES:
        message = f"cannot exchange {len(data)} bytes, because 1 MiB is the limit"
        raise ValueError(message)
    if size() == 1:
        return [json.loads(data)]
    import torch
    import torch.distributed as dist

    end_s = time.monotonic() + timeout_s
    longest = reduce_max([len(data)], timeout_s=timeout_s)[0]
    own = torch.frombuffer(bytearray(data.ljust(longest)), dtype=torch.uint8)
    told = [torch.empty_like(own) for _ in range(size())]
    left_s = max(end_s - time.monotonic(), 0.001)
    try:
        work = dist.all_gather(told, own, group=_side.of_now(), async_op=True)
        work.wait(timedelta(seconds=left_s))
    except RuntimeError as error:
        raise unreachable(error, timeout_s) from error
    return [json.loads(bytes(each.tolist())) for each in told]


def unreachable(error: Exception, waited_s: float) -> PeerError:
    """Return the error of ours for one of gloo's."""
    words = str(error).partition("\n")[0][:200]
    return PeerError(
        f"cannot agree with the other ranks, because one of them did not answer within"
        f" {waited_s:.1f} s or has gone: {words} (the rank that ended first says why)"
    )
