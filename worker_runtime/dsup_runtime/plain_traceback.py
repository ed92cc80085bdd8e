"""Tracebacks that print as they did, and hold nobody's frame.

An exception that is kept keeps the frames it went through and, by the frame that called
each of them, all others there were when it was raised, with batches and activations.
Clearing frames would not do: those further out still run, and one may be that of a
generator, which clearing ends. So each entry is copied onto a frame that nobody called:
that of a generator which never starts, with the names and lines of the original.

Not covered: what an exception holds itself, such as the object of an AttributeError.
"""

from __future__ import annotations

from dis import opmap
from types import CodeType, FunctionType, TracebackType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

_NOP: Final = bytes((opmap["NOP"], 0))


def strip(error: BaseException) -> None:
    """Let go of all frames of an exception, and of those it came from or holds."""
    seen: set[int] = set()
    left: list[BaseException | None] = [error]
    while left:
        each = left.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        each.__traceback__ = _copy(each.__traceback__)
        left += [each.__cause__, each.__context__]
        if isinstance(each, BaseExceptionGroup):
            left += each.exceptions


def _copy(trace: TracebackType | None) -> TracebackType | None:
    entries = []
    while trace is not None:
        entries.append(trace)
        trace = trace.tb_next
    copied = None
    for entry in reversed(entries):
        known = entry.tb_frame.f_globals
        # By these a source line is found that is in no file, but in an archive.
        names = {name: known.get(name) for name in ("__name__", "__loader__")}
        idle = FunctionType(_code(entry.tb_frame.f_code), names)()
        copied = TracebackType(copied, idle.gi_frame, entry.tb_lasti, entry.tb_lineno)
    return copied


def _idle() -> Iterator[None]:
    yield


def _code(like: CodeType) -> CodeType:
    """Return the code of a generator, with the names and the lines of another's."""
    own = _idle.__code__
    return own.replace(
        co_filename=like.co_filename,
        co_name=like.co_name,
        co_qualname=like.co_qualname,
        co_firstlineno=like.co_firstlineno,
        co_linetable=like.co_linetable,
        co_code=own.co_code + _NOP * (len(like.co_code) // len(_NOP)),
    )
