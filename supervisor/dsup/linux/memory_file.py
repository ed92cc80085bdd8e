"""Memory files that two processes share."""

from __future__ import annotations

import fcntl
import os
from typing import Final

_F_ADD_SEALS: Final = 1033
_SEAL_SEAL_SHRINK_GROW: Final = 0x1 | 0x2 | 0x4


def sealed(name: str, size: int, above: int) -> int:
    """Return a memory file of a fixed size; -1 where there can be none.

    Whoever it is shared with can neither fill memory through it nor cut it short.

    Args:
        name: what the kernel calls it.
        size: bytes.
        above: its descriptor is not below this number.
    """
    try:
        low = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    except OSError:
        return -1
    try:
        os.ftruncate(low, size)
        fcntl.fcntl(low, _F_ADD_SEALS, _SEAL_SEAL_SHRINK_GROW)
        return fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, above)
    except OSError:
        return -1
    finally:
        os.close(low)
