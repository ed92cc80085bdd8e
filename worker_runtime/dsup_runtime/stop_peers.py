"""The global stop without an agent's page: the ranks ask each other, one check late.

At a check each rank begins a maximum over what the ranks want, and goes on; it reads
the result at its next check. So the step between the two pays for the wait, and still
every rank reads the same at the same check. Only once a stop is decided do the ranks
wait for each other, so that the one that asked can tell why.
"""

from __future__ import annotations

from typing import Final

from dsup_runtime import contract, side_group
from dsup_runtime.errors import PeerError
from dsup_runtime.stop_page import Decision

_RANKS_MAX: Final = 1 << 32


class StopPeers:
    """The checks of this rank and of the others, paired.

    Attributes:
        limit_s: how long a check waits for the other ranks, seconds.
    """

    __slots__ = ("_check", "_pending", "limit_s")

    def __init__(self) -> None:
        self.limit_s = 0.0
        self._check = 0
        self._pending: side_group.Maximum | None = None

    def check(self, asked: dict[int, str], step: int) -> Decision | None:
        """Read what the ranks wanted at their last check, or ask them anew.

        Args:
            asked: what this rank wants: a reason for each index into STOP_KINDS.
            step: the caller's own.

        Raises:
            PeerError: if a rank does not come to its check in time, or has gone.
        """
        pending = self._take()
        wish = self._result(pending) if pending is not None else 0
        if wish:
            return self._explain(wish, asked)
        self._check += 1
        if asked or pending is None or contract.variable(contract.DEBUG):
            pending = self._ask(asked, step)
        else:
            pending.again()  # this rank has no more to say than all had
        self._pending = pending
        return None

    def drain(self, timeout_s: float) -> bool:
        """Let go of what is in flight, and return whether it came to its end."""
        pending = self._take()
        if pending is None:
            return True
        try:
            pending.result(timeout_s=timeout_s)
        except PeerError:
            return False
        return True

    def _take(self) -> side_group.Maximum | None:
        """Return what is in flight; what a destroyed group took with it is not.

        Whoever wanted something in that group wants it still, and asks in this one.
        """
        pending, self._pending = self._pending, None
        return pending if pending is not None and pending.is_of_now() else None

    def _ask(self, asked: dict[int, str], step: int) -> side_group.Maximum:
        return side_group.start_max(
            [_pack(max(asked)) if asked else 0],
            call="should_stop",
            timeout_s=self.limit_s,
            mark=step if contract.variable(contract.DEBUG) else 0,
        )

    def _result(self, pending: side_group.Maximum) -> int:
        """Return the greatest wish at the last check, packed; 0 for none."""
        try:
            return pending.result(timeout_s=self.limit_s)[0]
        except side_group.UnlikeError as unlike:
            raise _apart(self._check, unlike.marks) from None

    def _explain(self, wish: int, asked: dict[int, str]) -> Decision:
        """Have the rank whose wish won tell all others its reason."""
        kind, rest = divmod(wish, _RANKS_MAX)
        rank = _RANKS_MAX - 1 - rest
        own = asked[kind] if rank == side_group.rank() else ""
        reasons = side_group.exchange(own, timeout_s=self.limit_s)
        return Decision(kind, reasons[rank], rank)


def _pack(kind: int) -> int:
    """Return a wish as a number: of the greatest kind, that of the least rank wins."""
    return kind * _RANKS_MAX + _RANKS_MAX - 1 - side_group.rank()


def _apart(check: int, steps: tuple[int, int]) -> PeerError:
    return PeerError(
        f"cannot stop together, because at check {check} one rank was at step"
        f" {steps[0]} and another at step {steps[1]} (modulo"
        f" {side_group.MARK_LIMIT}; all ranks must call should_stop equally often: it"
        " may not stand under a condition such as `if is_main`)"
    )
