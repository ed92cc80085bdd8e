"""A barrier that ends: passed by all ranks, or with the names of those that miss it.

It proves that every rank came to it, not that any still lives: one may die right after.
As all ranks wait for the slowest, it belongs between the parts of a run, not into every
step.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import count
from time import monotonic, sleep
from typing import TYPE_CHECKING, Final

from dsup_runtime import contract, deferred, heartbeat, side_group, worker_info
from dsup_runtime.bounded import BoundedCall
from dsup_runtime.errors import BarrierTimeout, PeerError
from dsup_runtime.store_meeting import Meeting, Outcome, pause_s

if TYPE_CHECKING:
    from torch.distributed.distributed_c10d import Store

NAME_MAX_CHARS: Final = 200

_PASSED: Final = Outcome()
_LOOK_S: Final = 0.05
_STUCK_S: Final = 0.5
"""How long after its time a barrier may still ask the store who did not come."""

_GIVE_UP_S: Final = 1.0

_numbers = count()


def barrier(name: str, *, timeout_s: float = 300.0) -> None:
    """Wait until every rank is here; all ranks call it, or all learn who did not.

    Works with any backend, for it uses the store of the process group alone. Without a
    group, or alone in it, it returns at once. It does not wait for a rank that ``run``
    has ended for an error, nor, under dsup, for one that is known to have ended.

    Args:
        name: the barrier's, the same on every rank; at most 200 characters.
        timeout_s: how long to wait, seconds. The first rank whose time is over ends
            the barrier for all.

    Raises:
        BarrierTimeout: on every rank, if one did not come; it has their names.
        PeerError: if a rank is at another barrier, or the rank that hosts the store
            has ended.
        CollectiveInDefer: if this rank is in a block whose errors are deferred.
        ValueError: if the name or the time cannot be one.
    """
    is_met = side_group.size() > 1
    number = next(_numbers) if is_met else 0  # refused ones count: they do elsewhere
    _refuse_nonsense(name, timeout_s)
    deferred.forbid(f"barrier {name!r}")
    if is_met:
        _Visit(name, timeout_s, number).make()


def give_up() -> None:
    """Say that this rank comes to no barrier any more: who waits for it need not.

    To be called where a rank fails, before its process groups are destroyed. It takes
    a second at most, and raises nothing.
    """
    if side_group.size() > 1:
        with suppress(Exception):  # there is no store any more
            meeting = _meeting(0)
            call = BoundedCall(meeting.give_up, name="dsup-give-up")
            call.ended_within(_GIVE_UP_S)


class _Visit:
    """One rank at one barrier; its thread may hang where the store does."""

    __slots__ = (
        "_begin_s",
        "_end_s",
        "_meeting",
        "_name",
        "_outcome",
        "_over",
        "_page",
    )

    def __init__(self, name: str, timeout_s: float, number: int) -> None:
        self._name = name
        self._begin_s = monotonic()
        self._end_s = self._begin_s + timeout_s
        self._page = heartbeat.own_page()
        self._meeting = _meeting(number)
        self._outcome: Outcome | None = None
        self._over = False

    def make(self) -> None:
        """Come, wait and leave."""
        call = BoundedCall(self._meet, name="dsup-barrier")
        try:
            while not call.ended_within(_LOOK_S):
                if self._page is not None:
                    self._page.exchange()
                if monotonic() > self._end_s + _STUCK_S:
                    break
        finally:
            self._over = True
        if self._outcome is not None:
            self._judge(self._outcome)
        elif call.error is None:
            raise self._timeout(_hosts(), ())
        elif isinstance(call.error, RuntimeError):  # torch's own errors are such
            raise self._unreachable(call.error) from call.error
        else:
            raise call.error

    def _meet(self) -> None:
        self._meeting.arrive(self._name)
        while (outcome := self._meeting.outcome() or self._decide()) is None:
            sleep(pause_s(monotonic() - self._begin_s))
            if self._over:
                return
        self._outcome = outcome
        with suppress(RuntimeError):  # the store has gone: this rank knows enough
            self._meeting.leave(outcome)

    def _decide(self) -> Outcome | None:
        """End the barrier, if its time is over or a rank can not come any more."""
        dead = sorted({*self._dead(), *self._meeting.given_up()})
        if monotonic() >= self._end_s:
            missing = self._meeting.missing()
        elif not dead or not (missing := self._meeting.missing(dead)):
            return None
        deaths = tuple(rank for rank in missing if rank in dead)
        return self._meeting.decide(Outcome(missing, deaths))

    def _dead(self) -> list[int]:
        """Return the ranks that dsup has seen end."""
        if self._page is None:
            return []
        first = self._meeting.rank - worker_info.read_count("LOCAL_RANK", 0)
        return [first + slot for slot in self._page.dead()]

    def _judge(self, outcome: Outcome) -> None:
        if outcome.strayed is not None:
            raise PeerError(
                f"cannot pass barrier {self._name!r}, because rank {outcome.strayed} is"
                f" at barrier {outcome.names[1]!r} while others are at"
                f" {outcome.names[0]!r} (all ranks must come to the same barriers in"
                " the same order)",
                ranks=[outcome.strayed],
            )
        if outcome != _PASSED:
            raise self._timeout(outcome.missing, outcome.deaths)

    def _timeout(
        self, missing: tuple[int, ...], deaths: tuple[int, ...]
    ) -> BarrierTimeout:
        return BarrierTimeout(
            self._name,
            missing=missing,
            waited_s=monotonic() - self._begin_s,
            deaths=deaths,
        )

    def _unreachable(self, error: RuntimeError) -> PeerError:
        words = str(error).partition("\n")[0][:200]
        hosts = _hosts()
        host = f"rank {hosts[0]}" if hosts else "the process"
        return PeerError(
            f"cannot pass barrier {self._name!r}, because {host} that hosts the store"
            f" does not answer: {words} (its output says why it ended)",
            ranks=hosts,
        )


def _store() -> Store:
    import torch.distributed as dist

    return dist.distributed_c10d._get_default_store()  # noqa: SLF001 (no other way)


def _meeting(number: int) -> Meeting:
    import torch.distributed as dist

    return Meeting(
        _store(),
        f"dsup/barrier/{worker_info.read_attempt()}",
        number,
        rank=dist.get_rank(),
        world_size=dist.get_world_size(),
    )


def _hosts() -> tuple[int, ...]:
    """Return the other rank that hosts the store; empty if no other rank does."""
    import torch.distributed as dist
    from torch.distributed.distributed_c10d import PrefixStore

    store = _store()
    while isinstance(store, PrefixStore):
        store = store.underlying_store
    in_agent = contract.variable("TORCHELASTIC_USE_AGENT_STORE") == "True"
    by_tcp = isinstance(store, dist.TCPStore)  # type: ignore[attr-defined]
    return (0,) if by_tcp and not in_agent and dist.get_rank() else ()


def _refuse_nonsense(name: str, timeout_s: float) -> None:
    if not 0 < len(name) <= NAME_MAX_CHARS:
        message = f"cannot name a barrier {name[:40]!r}: give 1 to 200 characters"
        raise ValueError(message)
    try:
        name.encode()
    except UnicodeEncodeError:
        message = (
            f"cannot name a barrier {name[:40]!r}, because it holds half a character,"
            " which the store cannot keep"
        )
        raise ValueError(message) from None
    if not 0 < timeout_s <= side_group.TIMEOUT_MAX_S:  # also refuses nan
        message = (
            f"cannot wait {timeout_s!r} s at barrier {name!r}, because a limit is above"
            f" 0 and at most {side_group.TIMEOUT_MAX_S:.0f} s"
        )
        raise ValueError(message)
