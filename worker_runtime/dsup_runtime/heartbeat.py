"""The worker's side of the heartbeat page: that it lives, where it is, what it does.

A heartbeat is a clock reading and a few stores into this rank's own slot of a page that
this process shares with dsup's agent: no system call, nothing that waits, nothing that
can fail. With ``--heartbeat file`` or ``tcp`` the slot is brought to the agent besides,
at most once a millisecond. Where no page is proven to be ours, no call does anything.

Not covered: calls from several threads at once. They belong to the training thread.
"""

from __future__ import annotations

import os
from contextlib import suppress
from time import monotonic_ns

from dsup_runtime import contract
from dsup_runtime.contract import (
    SLOT_FLAGS,
    SLOT_HEARTBEAT_NS,
    SLOT_PHASE,
    SLOT_PHASE_LIMIT_NS,
    SLOT_PROGRESS_NS,
    SLOT_STEP,
)
from dsup_runtime.page import Page, claim

_INIT = contract.PHASES.index("init")
_TRAIN = contract.PHASES.index("train")
_NO_LIMIT = 0
_LOOK_AGAIN_S = 0.01
_STEP_LIMIT = 1 << 63  # a word holds no more
_LIMIT_MAX_S = 1e9  # about 30 years; its nanoseconds still fit into a word


class _Writer:
    """This process's slot and what was last told in it."""

    __slots__ = (
        "current", "due_ns", "looked", "outer", "page", "slot", "step", "untrained",
    )  # fmt: skip

    def __init__(self) -> None:
        self.page: Page | None = None
        self.slot: memoryview[int] | None = None
        self.due_ns = 0
        self.looked = False
        self.untrained = True
        self.current = (_INIT, _NO_LIMIT)
        self.outer: list[tuple[int, int]] = []
        self.step: int | None = None

    def look(self) -> memoryview[int] | None:
        """Return the slot, or None if unsupervised; the answer never changes again."""
        if not self.looked:
            self.looked = True
            self.page = claim()
            if self.page is not None:
                self.slot = self.page.slot
                self.due_ns = self.page.every_ns
                os.register_at_fork(after_in_child=self.forget)
        return self.slot

    def forget(self) -> None:
        """Leave the slot to the parent: a forked child is another process."""
        self.slot = None
        if self.page is not None:
            self.page.leave()
            self.page = None

    def exchange(self, now_ns: int) -> None:
        """Bring the slot to the agent, where it does not see it anyway."""
        if self.page is not None:
            self.due_ns = now_ns + self.page.every_ns
            self.page.exchange()

    def begin_training(self) -> None:
        """Let the first step end phase init, unless the caller named a phase."""
        if not self.outer:
            self.untrained = False
            self.tell((_TRAIN, _NO_LIMIT))

    def tell(self, current: tuple[int, int]) -> None:
        """Store a phase and its limit (nanoseconds), and a heartbeat.

        The heartbeat comes first: whatever mixture of old and new words a reader sees
        in between, it judges it at age 0.
        """
        self.current = current
        slot = self.slot if self.looked else self.look()
        if slot is not None:
            slot[SLOT_HEARTBEAT_NS] = monotonic_ns()
            slot[SLOT_PHASE_LIMIT_NS] = current[1]
            slot[SLOT_PHASE] = current[0]
            if self.page is not None:
                self.page.exchange()


_writer = _Writer()


def beat(step: int) -> None:
    """Tell dsup that training has reached a step; call it once a step.

    The first call outside of any ``phase`` starts phase train. Costs less than 1 us;
    if this process is not supervised, the step is only remembered.

    Args:
        step: the number of the step, from 0. A fraction is cut off; what is no number,
            or does not fit into 8 bytes, is not told.
    """
    _writer.step = step
    slot = _writer.slot
    if slot is None and (_writer.looked or (slot := _writer.look()) is None):
        return
    if _writer.untrained:
        _writer.begin_training()
    now_ns = monotonic_ns()
    try:
        slot[SLOT_STEP] = step  # before its time: who sees the new time sees the step
    except Exception:  # noqa: BLE001 (whatever a step of the user's own making raises)
        if (whole := _whole(step)) is not None:
            slot[SLOT_STEP] = whole
    slot[SLOT_PROGRESS_NS] = now_ns
    slot[SLOT_HEARTBEAT_NS] = now_ns
    if now_ns >= _writer.due_ns:
        _writer.exchange(now_ns)


class _Phase:
    """What ``phase`` returns: it is told at entry, and the one around it at exit."""

    __slots__ = ("_told",)

    def __init__(self, told: tuple[int, int]) -> None:
        self._told = told

    def __enter__(self) -> None:
        _writer.outer.append(_writer.current)
        _writer.tell(self._told)

    def __exit__(self, *_raised: object) -> None:
        _writer.tell(_writer.outer.pop())


def phase(name: str, *, limit_s: float | None = None) -> _Phase:
    """Return a context that says what this worker does meanwhile; contexts nest.

    Inside, dsup waits as long as the phase may last instead of as long as a step.

    Args:
        name: one of init, train, eval, checkpoint, finish.
        limit_s: how long it may last, seconds; None leaves that to dsup.

    Raises:
        ValueError: if there is no such phase, or the limit is not a length of time.
    """
    if name not in contract.PHASES:
        known = ", ".join(contract.PHASES)
        message = f"cannot enter phase {name!r}, because it is none of {known}"
        raise ValueError(message)
    if limit_s is not None and not 0 < limit_s <= _LIMIT_MAX_S:  # also refuses nan
        message = (
            f"cannot limit phase {name!r} to {limit_s!r} s, because a limit is above 0"
            f" and at most {_LIMIT_MAX_S:.0f} s (leave limit_s out to set none)"
        )
        raise ValueError(message)
    limit_ns = _NO_LIMIT if limit_s is None else max(1, int(limit_s * 1e9))
    return _Phase((contract.PHASES.index(name), limit_ns))


def within(name: str) -> bool:
    """Return whether this process is in a phase of that name, nested or not."""
    told = contract.PHASES.index(name)
    phases = [*_writer.outer, _writer.current]
    return any(which == told for which, _ in phases)


def supervised() -> bool:
    """Return whether this process has a slot of its own in a page of dsup's."""
    return _writer.look() is not None


def own_page() -> Page | None:
    """Return the page in which this process has a slot; None if it is unsupervised.

    Where the page is no shared memory, what is stored is seen by the agent, and what
    the agent has told is seen here, after ``exchange``.
    """
    _writer.look()
    return _writer.page


def tell_saved(step: int) -> None:
    """Let whoever looks know that there is a checkpoint of a step now."""
    page, whole = own_page(), _whole(step)
    if page is not None and whole is not None:
        page.slot[contract.SLOT_SAVED_STEP] = whole
        page.slot[contract.SLOT_SAVED_NS] = monotonic_ns()
        page.exchange()


def tell_failure(*, own: bool) -> None:
    """Let the other ranks of the node know that this one fails.

    Args:
        own: of an error of its own; else because it has lost another rank.
    """
    page = own_page()
    if page is not None:
        page.slot[SLOT_FLAGS] |= contract.FLAG_FAILED if own else contract.FLAG_LOST
        page.exchange()


def fallen(within_s: float) -> int | None:
    """Return the one rank that failed or ended first; None if that cannot be told.

    Args:
        within_s: how long to wait for it to be known, seconds.
    """
    page = own_page()
    if page is None:
        return None
    if str(page.words[contract.HEADER_SLOTS]) != contract.variable("WORLD_SIZE"):
        return None  # it may be on another node
    from threading import Event

    pause, end_ns = Event(), monotonic_ns() + int(within_s * 1e9)
    while not page.fallen() and monotonic_ns() < end_ns:
        pause.wait(_LOOK_AGAIN_S)
        page.exchange()
    found = page.fallen()
    return found[0] if len(found) == 1 else None


def last_step() -> int | None:
    """Return the step of the last heartbeat; None before one, or if it had none."""
    return None if _writer.step is None else _whole(_writer.step)


def _whole(step: object) -> int | None:
    """Return a step as a word can hold it; None if none can."""
    with suppress(Exception):  # numbers of the user's own making
        whole = int(step)  # type: ignore[call-overload]
        if -_STEP_LIMIT <= whole < _STEP_LIMIT:
            return int(whole)
    return None
