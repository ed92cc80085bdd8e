"""Signals as dsup takes them: blocked, and read from a descriptor."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Final, NamedTuple

from dsup.linux import libc

FORWARDED: Final = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
)

_SIGSET_BYTES: Final = 128
_SIGINFO_BYTES: Final = 128
_READ_MAX: Final = 64


class SignalInfo(NamedTuple):
    """A signal and the process that sent it."""

    signum: int
    sender_pid: int


def watched() -> set[signal.Signals]:
    """Return the signals that mean something to dsup.

    A SIGHUP that was ignored at the start (nohup) stays ignored.
    """
    signals = {*FORWARDED, signal.SIGCHLD}
    if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
        signals.discard(signal.SIGHUP)
    return signals


def descriptor() -> int:
    """Return a non-blocking descriptor that reads the watched, blocked signals.

    Raises:
        OSError: if the kernel gives none.
    """
    mask = sum(1 << (signum - 1) for signum in watched())
    flags = os.O_NONBLOCK | os.O_CLOEXEC
    fd = libc.call("signalfd", -1, mask.to_bytes(_SIGSET_BYTES, "little"), flags)
    if fd < 0:
        raise OSError("cannot open a signal descriptor, because the kernel gives none")
    return fd


def read(fd: int) -> list[SignalInfo]:
    """Return the signals waiting on a descriptor, lowest number first; never block."""
    try:
        data = os.read(fd, _READ_MAX * _SIGINFO_BYTES)
    except BlockingIOError:
        return []
    words = memoryview(data).cast("I")
    stride = _SIGINFO_BYTES // words.itemsize
    return [SignalInfo(words[at], words[at + 3]) for at in range(0, len(words), stride)]


def send_pinned(pid: int, signum: int, is_meant: Callable[[], bool]) -> bool:
    """Send a signal to a process that cannot be exchanged meanwhile.

    Args:
        pid: whose number it is.
        signum: the signal.
        is_meant: asked once the process is pinned by a descriptor, so that a number
            that was given to a stranger before is not signalled.

    Returns:
        Whether it was sent.
    """
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        if not is_meant():
            return False
        signal.pidfd_send_signal(pidfd, signum)
    except OSError:
        return False
    finally:
        os.close(pidfd)
    return True
