"""Words the note about an uncaught exception and sends it; imported when there is one.

See ``sitecustomize``: any Python from 3.8 on, and nothing may go wrong loudly.
"""

from __future__ import annotations

import json
import os
import socket
import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType

_NOTE_MAX_BYTES = 65536
_TEXT_MAX_CHARS = 8192
_NAME_MAX_CHARS = 200
_CAUSES_MAX = 4
_LIBRARIES = ("/site-packages/", "/dist-packages/", "<frozen ")


def tell(
    value: BaseException | None,
    trace: TracebackType | None,
    thread: str,
    how: tuple[int, str],
) -> None:
    """Tell the agent of an exception that nobody caught.

    Args:
        value: the exception; None if it is lost.
        trace: its traceback.
        thread: name of the thread; empty for the main thread.
        how: CLOCK_MONOTONIC, nanoseconds, when it was noticed, and the value of
            DSUP_NOTES when the process began.
    """
    at_ns, notes = how
    file, line, function = _place(trace)
    note = {
        "v": 1,
        "kind": "raised",
        "type": _name(type(value)),
        "text": _text(value),
        "at_ns": at_ns,
        "pid": os.getpid(),
        "thread": str(thread)[:_NAME_MAX_CHARS],
        "file": file,
        "line": line,
        "function": function,
        "causes": [[_name(type(e)), _text(e)[:1024]] for e in _causes(value)],
    }
    _send(notes, json.dumps(note).encode())


def _send(notes: str, data: bytes) -> None:
    kind, _, number = notes.partition(":")
    if kind != "fd" or not number.isdigit() or len(data) > _NOTE_MAX_BYTES:
        return
    fd = int(number)
    # Whatever else has this number by now is not to be written to.
    if not stat.S_ISSOCK(os.fstat(fd).st_mode):
        return
    channel = socket.socket(fileno=os.dup(fd))
    with channel:
        ours = channel.family == socket.AF_UNIX and channel.type == socket.SOCK_DGRAM
        if ours:
            channel.send(data, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)


def _name(kind: type) -> str:
    module = getattr(kind, "__module__", "")
    name = getattr(kind, "__qualname__", str(kind))
    full = name if module in ("builtins", "__main__", "") else f"{module}.{name}"
    return full[:_NAME_MAX_CHARS]


def _text(value: BaseException | None) -> str:
    try:
        return str(value)[:_TEXT_MAX_CHARS]
    except Exception:  # noqa: BLE001
        # A user's __str__ may raise anything; Python's own traceback says the same.
        return "<exception str() failed>"


def _place(trace: TracebackType | None) -> tuple[str, int | None, str]:
    """Return file, line and function of the innermost frame of the user's code."""
    frames = []
    while trace is not None:
        frames.append(trace)
        trace = trace.tb_next
    library = os.path.dirname(os.__file__)
    for found in reversed(frames):
        file = found.tb_frame.f_code.co_filename
        foreign = file.startswith(library) or any(p in file for p in _LIBRARIES)
        if not foreign:
            return file[:1024], found.tb_lineno, found.tb_frame.f_code.co_name
    if not frames:
        return "", None, ""
    last = frames[-1]
    code = last.tb_frame.f_code
    return code.co_filename[:1024], last.tb_lineno, code.co_name


def _causes(value: BaseException | None) -> list[BaseException]:
    """Return what it was raised from, or while, the nearest first."""
    found: list[BaseException] = []
    seen = {id(value)}
    while value is not None and len(found) < _CAUSES_MAX:
        hidden = getattr(value, "__suppress_context__", False)
        context = None if hidden else getattr(value, "__context__", None)
        value = getattr(value, "__cause__", None) or context
        if value is None or id(value) in seen:
            break
        seen.add(id(value))
        found.append(value)
    return found
