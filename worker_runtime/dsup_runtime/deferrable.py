"""What may be deferred: errors of a rank's own work, which ends with its call."""

from __future__ import annotations

import dis
import inspect
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from dsup_runtime.errors import BarrierTimeout, CollectiveInDefer, PeerError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

_OF_COLLECTIVES: Final = (PeerError, BarrierTimeout, CollectiveInDefer)
_YIELDS: Final = frozenset({"YIELD_VALUE", "RESUME"})
_GENERATORS: Final = inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR
_LAZY: Final = _GENERATORS | inspect.CO_COROUTINE | inspect.CO_ITERABLE_COROUTINE


def is_of_collective(error: Exception) -> bool:
    """Return whether an error says that the ranks have lost each other.

    Gloo tells it by a plain RuntimeError: that one cannot be known from any other.
    """
    if isinstance(error, _OF_COLLECTIVES):
        return True
    dist = sys.modules.get("torch.distributed")
    return (
        dist is not None and dist.is_available() and isinstance(error, dist.DistError)
    )


def is_thrown_in(trace: TracebackType | None) -> bool:
    """Return whether an error came into a generator from outside, at a yield.

    Args:
        trace: from the frame of the block on.
    """
    while trace is not None and trace.tb_frame.f_code.co_flags & _GENERATORS:
        if dis.opname[trace.tb_frame.f_code.co_code[trace.tb_lasti]] in _YIELDS:
            return True
        trace = trace.tb_next
    return False


def refuse_lazy(fn: Callable[..., object], name: str) -> None:
    """Refuse a function whose call does not run it.

    Raises:
        TypeError: if it is one of a coroutine or of a generator.
    """
    code = getattr(fn, "__code__", None)
    if code is not None and not code.co_flags & _LAZY:
        return
    for called in (fn, getattr(fn, "__call__", None)):  # noqa: B004 (an object's own)
        if inspect.iscoroutinefunction(called) or inspect.isasyncgenfunction(called):
            raise _lazy(name, "a coroutine function")
        if inspect.isgeneratorfunction(called):
            raise _lazy(name, "a generator function")


def refuse_unrun(result: object, name: str) -> None:
    """Refuse a result that has yet to run, and end it: Python would complain of it.

    Raises:
        TypeError: if it is a coroutine or an asynchronous generator.
    """
    if inspect.iscoroutine(result):
        with suppress(Exception):
            result.close()
    elif inspect.isasyncgen(result):
        with suppress(Exception):
            result.aclose().send(None)
    else:
        return
    raise _lazy(name, "a coroutine")


def _lazy(name: str, kind: str) -> TypeError:
    return TypeError(
        f"cannot defer the errors of {name}, because it is {kind}: calling it does not"
        " run it (give a function that runs it to its end)"
    )
