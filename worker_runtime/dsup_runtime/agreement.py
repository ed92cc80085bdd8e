"""A yes or no that is the same on every rank."""

from __future__ import annotations

import os
import sys

from dsup_runtime import contract, deferred, side_group, stop
from dsup_runtime.errors import PeerError

_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep


def agree(flag: bool, *, op: str = "any", timeout_s: float = 60.0) -> bool:
    """Return whether any rank, or all of them, said yes: now, exactly, on every rank.

    All ranks must call it, in the same order. Without a process group the flag is the
    answer, and one line in the log says so where there are other ranks. With
    DSUP_DEBUG=1 it also finds ranks that have not checked equally often for a stop.

    Args:
        flag: what this rank says.
        op: any or all.
        timeout_s: how long to wait for the other ranks, seconds.

    Raises:
        CollectiveInDefer: in a deferred block: it may hold no collective.
        PeerError: if a rank does not take part in time, has gone, or is in another
            call.
        ValueError: if there is no such op, or the time is not above 0 and at most 1e9.
    """
    if op not in {"any", "all"}:
        message = f"cannot agree by op {op!r}, because it is neither any nor all"
        raise ValueError(message)
    side_group.refuse_timeout(timeout_s)
    deferred.forbid("agree")
    by_any = op == "any"
    vote = bool(flag) is by_any  # a no against all is like a yes for any
    mark = stop.checks() if contract.variable(contract.DEBUG) else 0
    try:
        found = side_group.reduce_max(
            [int(vote)], timeout_s=timeout_s, call=f"agree {op}", mark=mark
        )[0]
    except side_group.UnlikeError:
        raise _uneven(timeout_s) from None
    return bool(found) is by_any


def _uneven(timeout_s: float) -> PeerError:
    """Return the error for ranks that did not call should_stop equally often.

    All ranks find that out in the same call, so all of them take part here.
    """
    told = side_group.exchange([stop.checks(), _caller()], timeout_s=timeout_s)
    ranks = "; ".join(
        f"rank {rank}: {count}, now at {place}"
        for rank, (count, place) in enumerate(told)
    )
    return PeerError(
        "cannot agree, because the ranks have called should_stop a different number of"
        f" times ({ranks}; one call stands under a condition such as `if is_main`)"
    )


def _caller() -> str:
    """Return the file and line outside of this package that the call came from."""
    frame = sys._getframe()  # noqa: SLF001 (inspect would read the sources)
    while frame.f_back and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"
