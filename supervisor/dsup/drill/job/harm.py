"""What is done to a rank in a drill: for real, and to that rank alone."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING, Final

from dsup_runtime import checkpoints, oom

if TYPE_CHECKING:
    from collections.abc import Callable

    from exchange import Exchange

EXIT_CODE: Final = 7

_SLOW_END_S: Final = 1.0
_CLONE_NEWNS: Final = 0x00020000
_CLONE_NEWUSER: Final = 0x10000000
_MS_REC: Final = 0x4000
_MS_PRIVATE: Final = 1 << 18
_SMALL_BYTES: Final = 64 * 1024


class RefusedError(RuntimeError):
    """This machine does not let it happen; nothing was done."""


def harm(kind: str, exchange: Exchange, checkpoint_dir: str) -> None:
    """Do it, having told so.

    Args:
        kind: a key of ``HARMS``; any other is an error.
        exchange: where it is told.
        checkpoint_dir: where this rank's checkpoints are.

    Raises:
        RefusedError: it is not to be had here.
        Exception: what a rank of its own accord would raise.
    """
    prepare = _PREPARED.get(kind)
    if prepare is not None:
        prepare(exchange.home)
    newest = checkpoints.newest_valid(checkpoint_dir).newest
    exchange.tell("fault", kind=kind, newest=newest.step if newest else 0)
    HARMS[kind](exchange.home, checkpoint_dir)


def _kill(_home: str, _root: str) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _stop(_home: str, _root: str) -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def _raise(_home: str, _root: str) -> None:
    raise ValueError("the drill's own exception")


def _slow_end(_home: str, _root: str) -> None:
    """Close what the others wait for first, and end long after them."""
    try:
        raise ValueError("the drill's own exception, told late")
    finally:
        for fd in _sockets():
            os.close(fd)
        time.sleep(_SLOW_END_S)


def _segfault(_home: str, _root: str) -> None:
    ctypes.string_at(0)


def _exit(_home: str, _root: str) -> None:
    sys.exit(EXIT_CODE)


def _early_exit(_home: str, _root: str) -> None:
    sys.exit(0)


def _deadlock(_home: str, _root: str) -> None:
    lock = threading.Lock()
    with lock:
        lock.acquire()  # for ever: its owner is this thread


def _silence(_home: str, _root: str) -> None:
    """Nothing: the caller tells no more steps."""


def _out_of_memory(_home: str, _root: str) -> None:
    oom.exhaust()


def _fill(home: str, _root: str) -> None:
    with open(os.path.join(_full(home), "state"), "wb") as file:
        file.write(bytes(2 * _SMALL_BYTES))


def _tear(_home: str, root: str) -> None:
    newest = checkpoints.newest_valid(root).newest
    if newest is None:
        raise RuntimeError("there is no checkpoint to tear")
    state = os.path.join(newest.path, "state")
    os.truncate(state, os.path.getsize(state) // 2)
    os.kill(os.getpid(), signal.SIGKILL)


def _sockets() -> list[int]:
    """Return the descriptors of this process's connections to other ranks."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            own = os.readlink(f"/proc/self/fd/{name}").startswith("socket:")
            if own and _is_tcp(int(name)):
                found.append(int(name))
        except OSError:
            continue
    return found


def _is_tcp(fd: int) -> bool:
    import socket

    with socket.socket(fileno=os.dup(fd)) as copy:
        return copy.family == socket.AF_INET


def _full(home: str) -> str:
    return os.path.join(home, "full")


def _small_disk(home: str) -> None:
    """Give this process alone a small file system; it goes when the process does.

    Raises:
        RefusedError: it may not have one.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    user, group = os.getuid(), os.getgid()
    os.makedirs(_full(home), exist_ok=True)
    if libc.unshare(_CLONE_NEWNS):
        if libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNS):
            raise _refused("a mount namespace")
        _map_users(user, group)
    nothing = ctypes.c_char_p(None)
    if libc.mount(b"none", b"/", nothing, _MS_REC | _MS_PRIVATE, nothing):
        raise _refused("mounts of its own")
    size = f"size={_SMALL_BYTES}".encode()
    if libc.mount(b"dsup-drill", os.fsencode(_full(home)), b"tmpfs", 0, size):
        raise _refused("a tmpfs of its own")


def _map_users(user: int, group: int) -> None:
    """Be the same user inside a user namespace as outside."""
    try:
        for name, text in (
            ("setgroups", "deny"),
            ("uid_map", f"{user} {user} 1"),
            ("gid_map", f"{group} {group} 1"),
        ):
            with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
                file.write(text)
    except OSError as error:
        raise RefusedError(
            f"needs a user namespace ({error.strerror}); run it as root"
        ) from None


def _refused(what: str) -> RefusedError:
    reason = os.strerror(ctypes.get_errno()).lower()
    return RefusedError(f"needs {what} ({reason}); run it as root")


def _own_cgroup(_home: str) -> None:
    """Move into a memory cgroup with a small limit.

    Raises:
        RefusedError: it cannot be made.
    """
    try:
        oom.enter()
    except oom.OomRefusedError as error:
        raise RefusedError(f"needs a memory cgroup of its own: {error.why}") from None


HARMS: Final[dict[str, Callable[[str, str], None]]] = {
    "kill": _kill,
    "stop": _stop,
    "raise": _raise,
    "slow-exit": _slow_end,
    "segfault": _segfault,
    "exit-code": _exit,
    "early-exit": _early_exit,
    "hang": _deadlock,
    "silence": _silence,
    "oom": _out_of_memory,
    "disk-full": _fill,
    "torn-checkpoint": _tear,
}
"""By the name of the scenario."""

_PREPARED: Final[dict[str, Callable[[str], None]]] = {
    "oom": _own_cgroup,
    "disk-full": _small_disk,
}
"""What may be refused, and is tried before anything is told."""
