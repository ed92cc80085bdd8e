"""The worker's side of the heartbeat page: that it lives, where it is, what it does.

The page is a mapping that dsup's agent made and this process inherited. A heartbeat is
a clock reading and a few stores into this rank's own slot: no system call, nothing that
waits, nothing that can fail. Where no page is proven to be ours, no call does anything.

Not covered: calls from several threads at once. They belong to the training thread.
"""

from __future__ import annotations

import errno
import mmap
import os
import select
import stat
from time import monotonic_ns

from dsup_runtime import contract
from dsup_runtime.contract import (
    SLOT_HEARTBEAT_NS,
    SLOT_PHASE,
    SLOT_PHASE_LIMIT_NS,
    SLOT_PID,
    SLOT_PROGRESS_NS,
    SLOT_STEP,
)

_INIT = contract.PHASES.index("init")
_TRAIN = contract.PHASES.index("train")
_NO_LIMIT = 0
_LIMIT_MAX_S = 1e9  # about 30 years; its nanoseconds still fit into a word
_SLOTS_MAX = 4096
_PID_MAX = 1 << 22  # the kernel's own PID_MAX_LIMIT


class _Writer:
    """This process's slot and what was last told in it."""

    __slots__ = ("current", "looked", "outer", "slot", "untrained")

    def __init__(self) -> None:
        self.slot: memoryview[int] | None = None
        self.looked = False
        self.untrained = True
        self.current = (_INIT, _NO_LIMIT)
        self.outer: list[tuple[int, int]] = []

    def look(self) -> memoryview[int] | None:
        """Return the slot, or None if unsupervised; the answer never changes again."""
        if not self.looked:
            self.looked = True
            self.slot = _claim_slot()
            if self.slot is not None:
                os.register_at_fork(after_in_child=self.forget)
        return self.slot

    def forget(self) -> None:
        """Leave the slot to the parent: a forked child is another process."""
        self.slot = None

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


_writer = _Writer()


def beat(step: int) -> None:
    """Tell dsup that training has reached a step; call it once a step.

    The first call outside of any ``phase`` starts phase train. Costs less than 1 us;
    does nothing if this process is not supervised.

    Args:
        step: the number of the step, from 0.
    """
    slot = _writer.slot
    if slot is None and (_writer.looked or (slot := _writer.look()) is None):
        return
    if _writer.untrained:
        _writer.begin_training()
    now_ns = monotonic_ns()
    slot[SLOT_STEP] = step  # before its time: who sees the new time sees the step
    slot[SLOT_PROGRESS_NS] = now_ns
    slot[SLOT_HEARTBEAT_NS] = now_ns


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


def supervised() -> bool:
    """Return whether this process has a slot of its own in a page of dsup's."""
    return _writer.look() is not None


def _claim_slot() -> memoryview[int] | None:
    """Return this rank's words of the inherited page; None unless it is proven ours."""
    try:
        place = contract.parse_heartbeat(contract.variable(contract.HEARTBEAT))
        if place is None:
            return None
        slot = _map_slot(*place, contract.variable(contract.ATTEMPT))
    except (OSError, ValueError, OverflowError):
        # A closed or read-only descriptor, a number too long for int() or for C:
        # whatever the variable names, it is no page for us.
        return None
    if slot is None or _held_by_another(slot[SLOT_PID]):
        return None
    slot[SLOT_PID] = os.getpid()
    return slot


def _map_slot(fd: int, slot: int, attempt: str) -> memoryview[int] | None:
    found = os.fstat(fd)
    words = found.st_size // contract.WORD_BYTES
    slots = (words - contract.HEADER_WORDS) // contract.SLOT_WORDS
    if not stat.S_ISREG(found.st_mode) or not slot < slots <= _SLOTS_MAX:
        return None
    if found.st_size != contract.page_bytes(slots):
        return None
    page = memoryview(mmap.mmap(fd, found.st_size)).cast("q")
    if page[contract.HEADER_MAGIC] != contract.MAGIC:
        return None
    if page[contract.HEADER_SLOTS] != slots:
        return None
    if str(page[contract.HEADER_ATTEMPT]) != attempt:
        return None
    first = contract.slot_offset(slot)
    return page[first : first + contract.SLOT_WORDS]


def _held_by_another(pid: int) -> bool:
    """Return whether a pid is that of another process that still runs."""
    if pid == os.getpid() or not 0 < pid <= _PID_MAX:
        return False
    try:
        fd = os.pidfd_open(pid)
    except OSError as error:
        # Anything but "no such process" (or a mere thread) is no proof that it is gone.
        return error.errno not in {errno.ESRCH, errno.EINVAL, errno.ENOENT}
    try:
        ended = select.poll()
        ended.register(fd, select.POLLIN)  # a zombie is readable: it holds nothing
        return not ended.poll(0)
    finally:
        os.close(fd)
