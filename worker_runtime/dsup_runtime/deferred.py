"""Errors of one rank that wait until every rank can leave together.

A rank whose own work fails (a log line, an upload, a file of its own) must not leave a
loop in which the others wait for it. Such work is wrapped: its error is logged at once
and kept, the loop goes on, and the next agreed stop ends the run on every rank at the
same step. The first error kept is the cause; later ones never take its place.

An error may wait only if this rank can still take part in every collective that the
others will start. So the error of a collective is never kept, and neither is what is no
``Exception``: KeyboardInterrupt, SystemExit, CancelledError and GeneratorExit pass.

Everything here is local, communicates with nobody, and may be called from any thread.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from contextvars import ContextVar
from time import monotonic_ns
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, TypeVar

from dsup_runtime import (
    collective_watch,
    deferrable,
    heartbeat,
    plain_traceback,
    worker_info,
)
from dsup_runtime.rank_log import log

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from dsup_runtime.errors import CollectiveInDefer

T = TypeVar("T")
_Blocks: TypeAlias = tuple[tuple[str, collective_watch.Watch | None], ...]

KEPT_MAX: Final = 32
"""So many errors are kept, the earliest; those after them are only logged."""


class Deferred(NamedTuple):
    """One error that waits.

    Attributes:
        error: the exception object itself; its traceback prints, and holds no frame.
        where: what the rank was doing.
        step: step of the last ``beat``; None before one.
        at_ns: when it was kept; CLOCK_MONOTONIC, nanoseconds.
    """

    error: Exception
    where: str
    step: int | None
    at_ns: int


class _Store:
    """This process's errors, the earliest first."""

    __slots__ = ("forked", "helper", "kept", "lock", "warned")

    def __init__(self) -> None:
        self.forked = self.helper = self.warned = False
        self.forget()

    def become_helper(self) -> None:
        """Begin anew in a forked child, which is no rank."""
        self.helper, self.warned = True, False
        self.forget()

    def is_news(self) -> bool:
        """Return whether errors kept here reach no rank, and that is yet to be said."""
        is_helper = self.helper or worker_info.is_loader_worker()
        news, self.warned = is_helper and not self.warned, is_helper
        return news

    def forget(self) -> None:
        """Begin with none: a forked child has no errors, whoever held the lock."""
        self.lock = threading.RLock()  # a signal handler may come in between
        self.kept: list[Deferred] = []

    def add(self, deferred: Deferred) -> bool:
        """Keep an error; return whether it is the first."""
        with self.lock:
            if not self.forked:
                self.forked = True
                os.register_at_fork(after_in_child=self.become_helper)
            if len(self.kept) < KEPT_MAX:
                self.kept.append(deferred)
            return self.kept[0] is deferred

    def take(self) -> Deferred | None:
        """Return the first error, and keep none any more."""
        with self.lock:
            first = self.kept[0] if self.kept else None
            self.kept.clear()
            return first


_store = _Store()
_inside: ContextVar[_Blocks] = ContextVar("dsup_deferred", default=())
"""The blocks that this thread or task is in, outermost first, with their watches."""


class _Block:
    """What ``defer`` returns; it keeps nothing, so it may be entered in itself."""

    __slots__ = ("_where",)

    def __init__(self, where: str) -> None:
        self._where = where

    def __enter__(self) -> None:
        watch = collective_watch.watch(self._where)
        _inside.set((*_inside.get(), (self._where, watch)))

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        refused = _leave()
        if error is not None and not isinstance(error, Exception):
            return False
        if refused is not None and refused is not error:
            raise refused from error
        if error is None or deferrable.is_of_collective(error):
            return False
        if deferrable.is_thrown_in(trace):
            log.error(
                "cannot defer an error in %s, because the code outside of a generator"
                " threw it in (take the yield out of the block)",
                self._where,
            )
            return False
        keep(error, where=self._where)
        return True


def defer(where: str) -> _Block:
    """Return a context that keeps the error of its block, and goes on after it.

    The block is local to this rank: it may hold no collective. With DSUP_DEBUG=1 one
    raises CollectiveInDefer before it waits for anyone. An error that the consumer of a
    generator throws in at a ``yield`` inside the block is not kept: it is not ours.
    An error in a helper process, such as a DataLoader's worker, is kept there and stops
    no rank: raise it there instead, and the loader raises it in its rank.

    Args:
        where: what the block does, for messages.
    """
    return _Block(where)


def try_or_defer(
    fn: Callable[..., T], /, *args: object, where: str | None = None, **kw: object
) -> T | None:
    """Call a function that is local to this rank; keep its error, if there is one.

    In a helper process, such as a DataLoader's worker, an error that is kept stops no
    rank: let it be raised there.

    Args:
        fn: what to call. It may hold no collective.
        args: its arguments.
        where: what it does, for messages; None names the function.
        kw: its arguments by name.

    Returns:
        What it returned, or None if it failed.

    Raises:
        TypeError: if calling it does not run it (a coroutine or a generator function).
    """
    name = where or getattr(fn, "__qualname__", None) or type(fn).__qualname__
    deferrable.refuse_lazy(fn, name)
    result = None
    with defer(name):
        result = fn(*args, **kw)
    deferrable.refuse_unrun(result, name)
    return result


def keep(error: Exception, *, where: str) -> None:
    """Log an error now, and keep it: the next agreed stop ends the run.

    Its traceback goes on to print as it does, but lets go of all frames and their
    tensors.

    Args:
        error: any; it need not have been raised.
        where: what this rank was doing.
    """
    with suppress(Exception):  # attributes of the user's own making
        plain_traceback.strip(error)  # first of all: handlers keep what they are given
    order = "first" if _store.add(_deferred(error, where)) else "later"
    with suppress(Exception):  # a handler of the user's: the loop goes on
        log.error("deferred an error in %s (the %s one)", where, order, exc_info=error)
        if _store.is_news():
            log.error(
                "cannot stop the run for the error in %s, because it is kept in this"
                " helper process only (raise it instead: a DataLoader raises it in its"
                " rank)",
                where,
            )


def has_deferred_error() -> bool:
    """Return whether this rank keeps an error; asks nobody else."""
    return bool(_store.kept)


def raise_if_deferred_error() -> None:
    """Raise the first error kept, the object itself, and forget all; else do nothing.

    Raises:
        Exception: the one that was kept first.
    """
    first = _store.take()
    if first is None:
        return
    try:
        raise first.error
    finally:
        del first  # or the traceback would hold this frame, and this frame it


def first() -> Deferred | None:
    """Return the first error kept, None without any; it stays."""
    kept = all_kept()
    return kept[0] if kept else None


def all_kept() -> tuple[Deferred, ...]:
    """Return the errors kept, the first one first; at most ``KEPT_MAX``."""
    with _store.lock:
        return tuple(_store.kept)


def clear() -> None:
    """Forget all errors."""
    _store.take()


def forbid(what: str) -> None:
    """Refuse something that needs all ranks, if this thread is in a deferred block.

    Args:
        what: what the caller is about to do.

    Raises:
        CollectiveInDefer: if it is.
    """
    blocks = _inside.get()
    if blocks:
        raise collective_watch.refusal(what, blocks[-1][0])


def _leave() -> CollectiveInDefer | None:
    """Leave the innermost block; return what it is to raise, if there is anything."""
    blocks = _inside.get()
    if not blocks:  # a generator that another thread has ended
        return None
    _inside.set(blocks[:-1])
    watch = blocks[-1][1]
    return watch.end() if watch is not None else None


def _deferred(error: Exception, where: str) -> Deferred:
    return Deferred(error, where, heartbeat.last_step(), monotonic_ns())
