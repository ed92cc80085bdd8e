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
    null = os.open(os.devnull, os.O_RDWR)
    for fd in range(_STDERR + 1):
        os.dup2(null, fd)
    for name in os.listdir("/proc/self/fd"):
        fd = int(name)
        if fd > _STDERR and fd not in kept:
            with contextlib.suppress(OSError):  # that of the listing itself
                os.close(fd)
