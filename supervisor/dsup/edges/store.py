"""The store aide: torch's key-value store in a process that outlives the ranks."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Mapping
from typing import Final

from dsup.core.environment import MASTER_ADDR

_SCRIPT: Final = os.path.join(
    os.path.dirname(os.path.dirname(os.path.abspath(__file__))),
    "torch_aides",
    "store.py",
)
_LISTENER_FD: Final = 3
_BACKLOG: Final = 1024


def start(
    python: str, held: socket.socket, environment: Mapping[str, str], world_size: int
) -> int:
    """Start the store on a held port; return its pid.

    Ranks may connect at once: the port listens from now on, and the store takes the
    waiting connections when it is up.

    Args:
        python: an interpreter that can import torch.
        held: the bound socket of MASTER_PORT.
        environment: what dsup was started with: the store is no rank.
        world_size: how many ranks will use it.

    Raises:
        OSError: if it cannot be started.
    """
    held.listen(_BACKLOG)
    where = [MASTER_ADDR, str(held.getsockname()[1]), str(world_size)]
    return os.posix_spawnp(
        python,
        [python, _SCRIPT, str(_LISTENER_FD), *where],
        environment,
        file_actions=[
            (os.POSIX_SPAWN_DUP2, held.fileno(), _LISTENER_FD),
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
        ],
        setsid=True,
        setsigmask=[],
        setsigdef=[signal.SIGPIPE, signal.SIGXFSZ],
    )
