"""The global stop: every rank leaves its loop at the same step, for the same reason.

Any rank may ask for it, at any time, from a signal handler too; so may whoever
supervises the run. Asking decides nothing. What is decided is read at ``should_stop``,
which every rank calls once a step and which answers alike on all of them:

    dsup's page holds all ranks    the agent names the check; no rank talks to another
    a process group, no such page  a maximum over all ranks, begun at one check and
                                   read at the next
    one process                    what was asked for here

A stop that was decided stays: each later call returns it, so that inner and outer loops
leave by the same answer.
"""

from __future__ import annotations

import os
from threading import get_ident
from typing import TYPE_CHECKING, Final, NamedTuple

from dsup_runtime import (
    contract,
    deferred,
    heartbeat,
    notes,
    side_group,
    stop_page,
    stop_peers,
    stop_remarks,
    worker_info,
)
from dsup_runtime.contract import STOP_KINDS

if TYPE_CHECKING:
    from dsup_runtime.errors import PeerError

DRAIN_S: Final = 5.0
_PEERS_S: Final = 600.0
"""How long ranks may be apart where nobody set a limit for collectives: NCCL's own."""

_ERROR: Final = STOP_KINDS.index("error")
_USER: Final = STOP_KINDS.index("user")
_PREEMPT: Final = STOP_KINDS.index("preempt")
_REASON_MAX_CHARS: Final = 500


class Stop(NamedTuple):
    """A stop that was decided: the same on every rank.

    Attributes:
        kind: what ends the run; one of STOP_KINDS but "none".
        reason: in a few words, as given by whoever asked.
        step: the caller's step at which all ranks leave.
        rank: global rank that asked; None for nobody in particular.
        grace_s: from a request to stop until the kill, seconds.
    """

    kind: str
    reason: str
    step: int
    rank: int | None
    grace_s: float

    @property
    def is_resumed(self) -> bool:
        """Whether the training has not come to its end, and goes on another time.

        So it is where a person stops dsup. A rank that stops it has had enough.
        """
        by_person = self.kind == "user" and self.rank is None
        return by_person or self.kind in {"preempt", "limit"}


class _Stopper:
    """What this process asked for, how often it has checked, and what was decided."""

    __slots__ = (
        "asked", "calls", "checks", "grace_s", "helper", "latched", "named", "page",
        "peers", "ready", "refused", "step", "strayed", "thread",
    )  # fmt: skip

    def __init__(self) -> None:
        self.asked: dict[int, str] = {}
        self.latched: Stop | None = None
        self.page: stop_page.StopPage | None = None
        self.peers = stop_peers.StopPeers()
        self.calls = self.checks = self.step = self.thread = 0
        self.named = self.ready = self.helper = self.strayed = self.refused = False
        self.grace_s = 0.0

    def ask(self, kind: int, reason: str) -> None:
        """Keep a wish; the first reason of its kind stays. Safe in a signal handler."""
        if self.helper or worker_info.is_loader_worker():
            self.refuse(kind, reason)
        elif self.latched is None and kind not in self.asked:
            self.asked[kind] = reason
            self.tell(kind)

    def refuse(self, kind: int, reason: str) -> None:
        """Say, once, that a wish in a helper process is nobody's.

        A signal to all processes comes to helpers too, and is no mistake of theirs.
        """
        if not self.refused and kind != _PREEMPT:
            self.refused = True
            stop_remarks.say_helper(reason)

    def tell(self, kind: int) -> None:
        """Have the agent know what is wanted here."""
        if self.page is not None:
            self.page.want(self.asked)
            self.ring(kind)

    def ring(self, kind: int) -> None:
        """Send a note of what is wanted here."""
        step = self.step if self.named else None
        reason = self.asked[kind]
        notes.send("stop", stop=STOP_KINDS[kind], reason=reason, step=step)

    def leave_alone(self, kind: int, place: worker_info.Info) -> None:
        """Have the agent stop the other ranks, which this one cannot ask itself.

        It can only signal them, which would make a failure of a rank that has enough.
        """
        page = heartbeat.own_page()
        if page is not None and place.world_size > 1 and kind != _USER:
            page.slot[contract.SLOT_WANTED] = kind
            page.exchange()
            self.ring(kind)

    def count(self, step: int | None) -> None:
        """Count a call, and keep the step it is at."""
        self.calls += 1
        if step is not None:
            self.named = True
            self.step = step
        elif not self.named:
            self.step = self.calls

    def check(self) -> Stop | None:
        """Find out whether all ranks are to leave here."""
        if get_ident() != self.thread and not self.is_rank():
            return None
        self.checks += 1
        if _ERROR not in self.asked and deferred.has_deferred_error():
            self.ask_for_deferred()
        page = self.page
        if page and not page.is_memory and not page.keeps(alone=side_group.size() == 1):
            page = self.page = None
        decision = page.check(self.checks) if page else self.check_unaided()
        if decision is not None:
            kind, reason, rank = decision
            self.latched = Stop(STOP_KINDS[kind], reason, self.step, rank, self.grace_s)
        return self.latched

    def check_unaided(self) -> stop_page.Decision | None:
        """Find it out among the ranks themselves; alone, do what was asked for."""
        if (lost := ended()) is not None:
            raise lost
        if side_group.size() > 1:
            deferred.forbid("should_stop")
            return self.peers.check(self.asked, self.step)
        side_group.warn_if_alone()
        if not self.asked:
            return None
        kind, place = max(self.asked), worker_info.info()
        self.leave_alone(kind, place)
        return stop_page.Decision(kind, self.asked[kind], place.rank)

    def ask_for_deferred(self) -> None:
        """Want a stop for the first error that this rank has deferred."""
        first = deferred.first()
        if first is not None:
            from traceback import format_exception_only

            text = format_exception_only(first.error)[-1].strip()
            self.ask(_ERROR, f"{first.where}: {text}"[:_REASON_MAX_CHARS])

    def is_rank(self) -> bool:
        """Return whether this process takes part, where that is not known yet."""
        if not self.ready:
            self.ready = True
            self.helper = worker_info.is_loader_worker()
            if not self.helper:
                self.get_ready()
        elif not self.helper and not self.strayed:
            self.strayed = True
            stop_remarks.say_threads()
        return not self.helper

    def get_ready(self) -> None:
        """Find out who is to be asked, and tell what has been wanted so far."""
        self.thread = get_ident()  # a helper has none, so that it always comes here
        os.register_at_fork(after_in_child=self.become_helper)
        place = worker_info.info()
        self.grace_s = place.grace_s
        self.peers.limit_s = place.comm_timeout_s or _PEERS_S
        self.page = _claim_page(place)
        for kind in sorted(self.asked):
            self.tell(kind)

    def become_helper(self) -> None:
        """Take no part any more: a forked child is no rank."""
        self.helper = True
        self.latched = self.page = None
        self.thread = 0


_stopper = _Stopper()


def request_stop(reason: str, *, kind: str = "user") -> None:
    """Ask for all ranks to stop at the same step; return at once.

    Safe in a signal handler and from any thread. Of several requests the greatest kind
    wins, and its first reason; once a stop is decided, requests change nothing. In a
    helper process, such as a DataLoader's worker, it does nothing but say so: raise
    there, and the loader raises it in its rank.

    Args:
        reason: in a few words, for people.
        kind: user, limit, preempt, peer or error, from least to greatest; what they
            mean is told at ``contract.STOP_KINDS``.

    Raises:
        ValueError: if there is no such kind.
    """
    if kind not in STOP_KINDS[1:]:
        known = ", ".join(STOP_KINDS[1:])
        message = (
            f"cannot ask for a stop of kind {kind!r}, because it is none of {known}"
        )
        raise ValueError(message)
    _stopper.ask(STOP_KINDS.index(kind), reason[:_REASON_MAX_CHARS])


def should_stop(step: int | None = None, *, every: int = 1) -> Stop | None:
    """Return the stop that all ranks are to obey now, None to go on.

    All ranks must call it, equally often and in the same order; it belongs at the end
    of a step, outside of what is compiled. It includes errors deferred on any rank.
    Under dsup it costs about a microsecond (more without shared memory, where ranks
    with a process group ask each other) and takes part in no collective; dsup names
    the check, so that nothing stops the loop while dsup itself is stopped (SIGSTOP). In
    a helper process, such as a DataLoader's worker, the answer is always None. Without
    a process group and without dsup's page, each rank answers for itself alone.

    Args:
        step: the caller's step, for ``Stop.step``; None for that of the last call that
            named one, or the number of calls where none ever did.
        every: only each so many-th call looks, the others cost nothing.

    Raises:
        CollectiveInDefer: without dsup, in a deferred block.
        PeerError: if dsup ends the ranks, because one has failed; without dsup, if
            another rank does not call it as often, or is gone.
        ValueError: if ``every`` is below 1.
    """
    if every < 1:
        message = f"cannot look at every {every}th call, because it is below 1"
        raise ValueError(message)
    stopper = _stopper
    if stopper.latched is not None:
        return stopper.latched
    stopper.count(step)
    return None if stopper.calls % every else stopper.check()


def agreed() -> Stop | None:
    """Return the stop that was decided; None without one. Asks nobody."""
    return _stopper.latched


def ended() -> PeerError | None:
    """Return why dsup ends this rank, for a failure of another; None if it does not.

    A stop that was decided before goes on as it was decided. Safe in a signal handler.
    """
    page = heartbeat.own_page() if _stopper.latched is None else None
    if page is None:
        return None
    page.exchange()  # what is known here may be older than the signal that asks
    return stop_page.ended(page)


def checks() -> int:
    """Return how many checks this process has made."""
    return _stopper.checks


def drain(*, timeout_s: float = DRAIN_S) -> bool:
    """Let go of what a check has begun with the other ranks; nothing is decided by it.

    To be called before process groups are destroyed, or that may wait for it.

    Args:
        timeout_s: how long to wait for the other ranks, seconds.

    Returns:
        Whether nothing is in flight any more.
    """
    return _stopper.peers.drain(timeout_s)


def _claim_page(place: worker_info.Info) -> stop_page.StopPage | None:
    """Return dsup's page if every rank of the world has a slot on it."""
    page = heartbeat.own_page()
    if page is None:
        return None
    slots, size = page.words[contract.HEADER_SLOTS], side_group.size()
    if slots != place.world_size or size not in {1, slots if page.is_memory else 1}:
        return None
    return stop_page.StopPage(page, grace_s=place.grace_s)


def wish() -> Stop | None:
    """Return the stop that was decided, else what this rank wants; None for neither."""
    stopper = _stopper
    if stopper.latched is not None or not stopper.asked:
        return stopper.latched
    kind, rank = max(stopper.asked), worker_info.info().rank
    reason, step = stopper.asked[kind], stopper.step
    return Stop(STOP_KINDS[kind], reason, step, rank, stopper.grace_s)


def conclude(stop: Stop | None) -> None:
    """Take over what all ranks have settled where they part."""
    if _stopper.latched is None:
        _stopper.latched = stop


def begin_anew() -> None:
    """Forget what was asked for, decided and begun in a run that has ended."""
    stopper = _stopper
    stopper.asked.clear()
    stopper.latched = None
    stopper.calls = stopper.step = 0
    stopper.named = False
    limit_s, stopper.peers = stopper.peers.limit_s, stop_peers.StopPeers()
    stopper.peers.limit_s = limit_s
