"""Calls into libc that Python has no function for."""

from __future__ import annotations

from typing import Final

try:  # now: a process that becomes another user's may find no module any more
    import _ctypes
except ImportError:
    _ctypes = None  # type: ignore[assignment]

_PR_SET_CHILD_SUBREAPER: Final = 36


def call(name: str, *args: int | bytes) -> int:
    """Call a function of libc that takes and returns ints, or pointers to bytes.

    ``_ctypes`` is used directly where its private interface still is what it was: that
    saves the import of ``ctypes`` on the way to the first rank.
    """
    try:
        address = _ctypes.dlsym(_ctypes.dlopen("", 0), name)
        return int(_ctypes.call_function(address, args))
    except (ImportError, AttributeError, TypeError):
        import ctypes

        return int(getattr(ctypes.CDLL(None), name)(*args))


def become_subreaper() -> bool:
    """Make this process the parent of its orphaned descendants; return success."""
    return call("prctl", _PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
