"""How soon this process gets a processor where others want it, too."""

from __future__ import annotations

import contextlib
import os
from typing import Final

_QUICKER: Final = -5


def be_quick(nice: int) -> None:
    """Ask for the processor before busy ranks; only root is given it.

    Args:
        nice: what this process was started with.
    """
    with contextlib.suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, nice + _QUICKER)
