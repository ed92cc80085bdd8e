"""What a forked child does first: let go of everything that is not its own."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection
from typing import Final

_STDERR: Final = 2


def drop_descriptors(kept: Collection[int]) -> None:
    """Close inherited descriptors, and have /dev/null for the standard ones.

    A child that hangs must keep no pipe open; the console is one, and whoever reads it
    would wait for the child.
    """
    with contextlib.suppress(OSError):
        os.close(0)  # the listing finds this one free, however full the table is
    for name in os.listdir("/proc/self/fd"):
        fd = int(name)
        if fd > _STDERR and fd not in kept:
            with contextlib.suppress(OSError):  # that of the listing itself
                os.close(fd)
    os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # it is the lowest, 0
    for fd in range(1, _STDERR + 1):
        os.dup2(0, fd)
