"""Crashes of native code: by the kernel's word, the C library's, or C++'s."""

import ctypes
import os
import sys
import threading
from pathlib import Path


def null_read():
    """Read address 0."""
    ctypes.string_at(0)


def double_free():
    """Free twice what malloc gave; the C library notices, and aborts."""
    libc = ctypes.CDLL(None)
    libc.malloc.restype = ctypes.c_void_p
    libc.free.argtypes = [ctypes.c_void_p]
    block = libc.malloc(48)
    libc.free(block)
    libc.free(block)


def throw():
    """Have C++ throw what nobody catches, as an extension of the user's."""
    ctypes.CDLL(str(Path(os.environ["SCENARIO_DIR"]) / "thrower.so")).throw_it()


def abort_in_thread():
    """Abort in a thread, while the main thread waits for it."""
    thread = threading.Thread(target=os.abort, name="loader")
    thread.start()
    thread.join()


def recurse():
    """Call oneself until Python forbids it."""
    recurse()


class _Endless:
    """An object whose text holds its own text: each level is a call in C."""

    def __repr__(self):
        return repr([self])


def overflow_the_stack():
    """Recurse through C until the stack has no page left."""
    sys.setrecursionlimit(1 << 30)
    repr(_Endless())
