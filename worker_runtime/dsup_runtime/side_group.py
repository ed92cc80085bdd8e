"""The runtime's own process group: small, bounded exchanges of all ranks on the CPU.

A gloo group beside the caller's own is made at the first exchange, so that nothing here
meets the caller's collectives or its GPU. Without a process group, or alone in it, an
exchange is local and no group is ever made. Values travel as JSON: what a rank sends is
never unpickled.

Every function here must be called by all ranks in the same order. Ranks that meet in
different calls all learn it at once: each sends which call it is in.
"""

from __future__ import annotations

import json
import sys
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from dsup_runtime import worker_info
from dsup_runtime.bounded import BoundedCall
from dsup_runtime.errors import PeerError
from dsup_runtime.rank_log import log

if TYPE_CHECKING:
    import torch
    import torch.distributed as dist

Json: TypeAlias = Any

VALUE_MAX_BYTES: Final = 1 << 20
"""Longest JSON a rank may send; a longer one is the caller's bug."""

NUMBER_LIMIT: Final = 1 << 47
"""Every number of a maximum is below this, and at least 0."""

MARK_LIMIT: Final = 1 << 12

TIMEOUT_MAX_S: Final = 1e9
"""About 30 years: in nanoseconds it still fits into what gloo counts with."""

CALLS: Final = ("exchange", "reduce_max", "agree any", "agree all", "should_stop")
"""What a rank may be in; it sends the index."""

_WORDS: Final = 2  # from 3 on gloo cuts them up among the ranks, many times as slow
_TAG_MAX: Final = (1 << 16) - 1


class UnlikeError(PeerError):
    """The ranks are in the same call, but have not made the same calls before it.

    Attributes:
        marks: the least and the greatest.
    """

    def __init__(self, call: str, marks: tuple[int, int]) -> None:
        self.marks = marks
        super().__init__(f"cannot go on with {call}, because the ranks came apart")


class _Side:
    """The side group of the process group there is now."""

    __slots__ = ("group", "judged", "limited", "world")

    def __init__(self) -> None:
        self.world: dist.ProcessGroup | None = None
        self.group: dist.ProcessGroup | None = None
        self.limited: tuple[float, dist.AllreduceOptions] | None = None
        self.judged = False

    def of_now(self, timeout_s: float) -> dist.ProcessGroup:
        import torch.distributed as dist

        if self.group is None or self.world is not dist.group.WORLD:
            self.group = _new_group(timeout_s)
            self.world = dist.group.WORLD
        return self.group

    def options(self, timeout_s: float) -> dist.AllreduceOptions:
        """Return what a maximum is made with; as a rule that of the last time.

        Without a limit of its own, destroying the group would wait half an hour for it.
        """
        if self.limited is None or self.limited[0] != timeout_s:
            import torch.distributed as dist

            options = dist.AllreduceOptions()
            options.reduceOp = dist.ReduceOp(dist.ReduceOp.MAX)
            options.timeout = _limit(timeout_s)
            self.limited = timeout_s, options
        return self.limited[1]


_side = _Side()


def let_go() -> None:
    """Hold no group: gloo's threads that outlive theirs may abort the interpreter."""
    _side.group = _side.world = None


def size() -> int:
    """Return how many ranks an exchange reaches: 1 where there is no group."""
    return int(sys.modules["torch.distributed"].get_world_size()) if _is_met() else 1


def _is_met() -> bool:
    dist = sys.modules.get("torch.distributed")
    return dist is not None and dist.is_available() and dist.is_initialized()


def warn_if_alone() -> None:
    """Log, once, that this rank answers alone though its launcher started others."""
    if _side.judged or _is_met():
        return
    _side.judged = True
    if worker_info.read_count("WORLD_SIZE", 1) > 1:
        log.warning(
            "cannot agree with the other ranks, because there is no process group;"
            " answering for this rank alone (call init_process_group before)"
        )


def refuse_timeout(timeout_s: float) -> None:
    """Raise ValueError for what is no time to wait for other ranks."""
    if not 0 < timeout_s <= TIMEOUT_MAX_S:  # also refuses nan
        message = (
            f"cannot wait {timeout_s!r} s for other ranks, because a limit is above 0"
            f" and at most {TIMEOUT_MAX_S:.0f} s"
        )
        raise ValueError(message)


def rank() -> int:
    """Return this rank's place in an exchange: 0 where there is no group."""
    return int(sys.modules["torch.distributed"].get_rank()) if _is_met() else 0


class Maximum:
    """A maximum over all ranks that is under way.

    Args:
        told: the words that this rank gives, and those of all in the end.
        count: how many numbers are in them.
        timeout_s: how long the other ranks may take, seconds.
    """

    __slots__ = ("_begin_s", "_count", "_group", "_options", "_told", "_work", "world")

    def __init__(self, told: torch.Tensor, count: int, timeout_s: float) -> None:
        self._told = told
        self._count = count
        self._begin_s = time.monotonic()
        self._group = _side.of_now(timeout_s)
        self.world = _side.world
        self._options = _side.options(timeout_s)
        self._work = self._begin()

    def is_of_now(self) -> bool:
        """Return whether its process group is still the one there is."""
        import torch.distributed as dist

        return self.world is dist.group.WORLD

    def again(self) -> None:
        """Begin it anew with the numbers found: once more the own, if none was more."""
        self._begin_s = time.monotonic()
        self._work = self._begin()

    def result(self, *, timeout_s: float) -> list[int]:
        """Return the maximum of all ranks, number by number.

        Args:
            timeout_s: how long to wait for it from now, seconds.

        Raises:
            PeerError: if a rank does not take part in time, has gone, or is in
                another call.
            UnlikeError: if the ranks gave different marks.
        """
        _wait(self._work, timeout_s, self._begin_s)
        first, second = self._told.tolist()
        greatest, least = first // NUMBER_LIMIT, _TAG_MAX - second // NUMBER_LIMIT
        if greatest != least:
            raise _strayed(least, greatest)
        return [first % NUMBER_LIMIT, second % NUMBER_LIMIT][: self._count]

    def _begin(self) -> dist.Work:
        try:
            return self._group.allreduce([self._told], self._options)
        except RuntimeError as error:  # gloo knows no other
            raise unreachable(error, time.monotonic() - self._begin_s) from error


def start_max(
    numbers: list[int], *, call: str, timeout_s: float, mark: int = 0
) -> Maximum:
    """Begin a maximum over all ranks, of which there must be more than one.

    Args:
        numbers: one or two, as many on every rank, each in [0, NUMBER_LIMIT).
        call: on whose behalf; one of CALLS.
        timeout_s: how long the other ranks may take, seconds.
        mark: what has to be the same on all ranks, modulo MARK_LIMIT.

    Raises:
        PeerError: if the side group cannot be made, because a rank takes no part.
    """
    refuse_timeout(timeout_s)
    import torch

    told = torch.tensor(_pack(numbers, call, mark), dtype=torch.int64)
    return Maximum(told, len(numbers), timeout_s)


def reduce_max(
    numbers: list[int], *, timeout_s: float, call: str = "reduce_max", mark: int = 0
) -> list[int]:
    """Return the maximum of all ranks, number by number.

    Args:
        numbers: one or two, as many on every rank, each in [0, NUMBER_LIMIT).
        timeout_s: how long to wait for the others, seconds.
        call: on whose behalf; one of CALLS.
        mark: what has to be the same on all ranks, modulo MARK_LIMIT.

    Raises:
        PeerError: if a rank does not take part in time, has gone, or is in another
            call.
        UnlikeError: if the ranks gave different marks.
    """
    refuse_timeout(timeout_s)
    if size() == 1:
        warn_if_alone()
        return list(numbers)
    end_s = time.monotonic() + timeout_s
    maximum = start_max(numbers, call=call, timeout_s=timeout_s, mark=mark)
    return maximum.result(timeout_s=end_s - time.monotonic())


def exchange(value: Json, *, timeout_s: float) -> list[Json]:
    """Return what every rank gave, by rank.

    Args:
        value: anything JSON can hold, at most 1 MiB of it.
        timeout_s: how long to wait for the others, seconds.

    Raises:
        PeerError: if a rank does not take part in time, has gone, or is in another
            call.
        ValueError: if the value is too long, or the time cannot be.
    """
    refuse_timeout(timeout_s)
    data = json.dumps(value).encode()
    if len(data) > VALUE_MAX_BYTES:
        message = f"cannot exchange {len(data)} bytes, because 1 MiB is the limit"
        raise ValueError(message)
    if size() == 1:
        return [json.loads(data)]
    import torch
    from torch.distributed import distributed_c10d

    begin_s = time.monotonic()
    longest = reduce_max([len(data)], timeout_s=timeout_s, call="exchange")[0]
    own = torch.frombuffer(bytearray(data.ljust(longest)), dtype=torch.uint8)
    told = [torch.empty_like(own) for _ in range(size())]
    left_s = begin_s + timeout_s - time.monotonic()
    options = distributed_c10d.AllgatherOptions()  # type: ignore[attr-defined]
    options.timeout = _limit(left_s)
    try:
        work = _side.of_now(left_s).allgather([told], [own], options)
    except RuntimeError as error:
        raise unreachable(error, time.monotonic() - begin_s) from error
    _wait(work, left_s, begin_s)
    return [json.loads(bytes(each.tolist())) for each in told]


def unreachable(error: BaseException, waited_s: float) -> PeerError:
    """Return the error of ours for one of gloo's."""
    words = str(error).partition("\n")[0][:200]
    return PeerError(
        f"cannot agree with the other ranks, because one of them did not answer within"
        f" {waited_s:.1f} s or has gone: {words} (the rank that ended first says why)"
    )


def _pack(numbers: list[int], call: str, mark: int) -> list[int]:
    """Return two words, each a number and, above it, the tag of the call.

    The maximum of one has the greatest tag of all ranks, that of the other the least.
    """
    sound = all(0 <= number < NUMBER_LIMIT for number in numbers)
    if not sound or not 0 < len(numbers) <= _WORDS:
        message = (
            f"cannot reduce {numbers}, because that is not one or two numbers from 0"
            f" below {NUMBER_LIMIT}"
        )
        raise ValueError(message)
    tag = CALLS.index(call) * MARK_LIMIT + mark % MARK_LIMIT
    first, second = (numbers + [0] * _WORDS)[:_WORDS]
    return [tag * NUMBER_LIMIT + first, (_TAG_MAX - tag) * NUMBER_LIMIT + second]


def _strayed(least: int, greatest: int) -> PeerError:
    """Return the error for ranks whose tags are not the same."""
    one, least_mark = divmod(least, MARK_LIMIT)
    other, greatest_mark = divmod(greatest, MARK_LIMIT)
    if one == other:
        return UnlikeError(CALLS[one], (least_mark, greatest_mark))
    return PeerError(
        f"cannot agree with the other ranks, because they meet in different calls, in"
        f" {CALLS[one]} and in {CALLS[other]} (all ranks must make the same calls in"
        " the same order: none may stand under a condition such as `if is_main`)"
    )


def _limit(left_s: float) -> timedelta:
    """Return a time for gloo, which counts milliseconds, and none of them as no end."""
    return timedelta(seconds=min(max(left_s, 0.001), TIMEOUT_MAX_S))


def _wait(work: dist.Work, left_s: float, begin_s: float) -> None:
    try:
        work.wait(_limit(left_s))
    except RuntimeError as error:
        raise unreachable(error, time.monotonic() - begin_s) from error


def _new_group(timeout_s: float) -> dist.ProcessGroup:
    """Make a gloo group of all ranks, within bounds.

    On a thread of its own, because the store may hang for ever where the rank that
    hosts it is frozen.
    """
    import torch.distributed as dist

    made: list[dist.ProcessGroup] = []

    def make() -> None:
        made.append(dist.new_group(backend="gloo", timeout=_limit(timeout_s)))

    begin_s = time.monotonic()
    making = BoundedCall(make, name="dsup-side-group")
    if not making.ended_within(timeout_s) or not made:
        cause = making.error or TimeoutError("the side group was not made")
        raise unreachable(cause, time.monotonic() - begin_s) from cause
    return made[0]
