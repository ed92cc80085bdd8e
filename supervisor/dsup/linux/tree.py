"""Descendants of this process: signalled only when proven ours, reaped by pid."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Collection
from typing import Final

from dsup.linux import proc
from dsup.linux.signals import send_pinned

UNSEEN: Final = 2**22
"""Stands for whatever could not be looked at: the kernel gives no such number."""

_STOP_ROUNDS: Final = 8
_LOOKS: Final = 16


def alive(
    spare: Collection[int] = (),
    *,
    owned: Collection[int] | None = None,
    which: Callable[[int], bool] | None = None,
) -> list[int]:
    """Return the living descendants of this process, parents first.

    An empty answer is a proof: a process may end while it is looked at, and leave a
    child that the look had passed. So "none" counts only when two looks find the same
    dead; where the dead keep changing, something lives. A process that can open nothing
    sees nobody, and proves nothing: ``UNSEEN`` lives then.

    Args:
        spare: children that do not count, with all that is below them.
        owned: see ``reap_adopted``, which then clears the dead away before each look;
            None leaves them. They can be many, and make each look longer.
        which: tells which of the living count; None for all.
    """
    before: list[int] | None = None
    for _ in range(_LOOKS):
        if owned is not None:
            reap_adopted(owned)
        below = proc.descendants(os.getpid(), without=spare)
        living = [pid for pid in below if proc.is_alive(pid)]
        if which is not None:
            living = [pid for pid in living if which(pid)]
        if living:
            return living
        if not proc.thread_ids(os.getpid()):
            return [UNSEEN]
        if below == before:
            return []
        before = below
    return before or []


def send(pid: int, signum: int) -> bool:
    """Send a signal to a descendant; return whether it was sent.

    The process is pinned by a descriptor first and its ancestry is read after that,
    so a pid that was given to a stranger in between is never hit.
    """
    return send_pinned(pid, signum, lambda: _is_descendant(pid))


def _is_descendant(pid: int) -> bool:
    me = os.getpid()
    while pid > 1:
        found = proc.stat(pid)
        if found is None:
            return False
        if found.ppid == me:
            return True
        pid = found.ppid
    return False


def kill(
    spare: Collection[int] = (), *, owned: Collection[int] | None = None
) -> set[int]:
    """Send SIGKILL to every descendant; return those that were alive.

    They are stopped first, until a look finds no new one: a process that forks faster
    than it is found would escape a plain walk.

    Args:
        spare: see ``alive``.
        owned: see ``alive``.
    """
    stopped: set[int] = set()
    for _ in range(_STOP_ROUNDS):
        new = set(alive(spare, owned=owned)) - stopped
        if not new:
            break
        stopped |= {pid for pid in new if send(pid, signal.SIGSTOP)}
    for pid in stopped:
        send(pid, signal.SIGKILL)
    return stopped


def has_dead_child() -> bool:
    """Return whether a child has ended that nobody has collected: one call tells."""
    try:
        how = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_ALL, 0, how) is not None
    except ChildProcessError:
        return False


def reap_adopted(owned: Collection[int]) -> None:
    """Collect dead children that somebody else does not wait for.

    Args:
        owned: children whose exit status their owner collects.
    """
    for pid in proc.children(os.getpid()):
        if pid not in owned:
            try:
                os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:
                continue
