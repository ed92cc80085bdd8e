"""The store aide: torch's key-value store in a process that outlives the ranks."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Mapping
from typing import Final

_SCRIPT: Final = os.path.join(
    os.path.dirname(os.path.dirname(os.path.abspath(__file__))),
    "torch_aides",
    "store.py",
)
_LISTENER_FD: Final = 3
_BACKLOG: Final = 1024
_WHERE: Final = ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE")


def start(python: str, held: socket.socket, environment: Mapping[str, str]) -> int:
    """Start the store on a held port; return its pid.

    Ranks may connect at once: the port listens from now on, and the store takes the
    waiting connections when it is up.

    Args:
        python: an interpreter that can import torch.
        held: the bound socket of MASTER_PORT.
        environment: of any rank; says where, and for how many ranks.

    Raises:
        OSError: if it cannot be started.
    """
    held.listen(_BACKLOG)
    where = [environment[name] for name in _WHERE]
    os.set_inheritable(held.fileno(), False)
    return os.posix_spawnp(
        python,
        [python, _SCRIPT, str(_LISTENER_FD), *where],
        environment,
        file_actions=[(os.POSIX_SPAWN_DUP2, held.fileno(), _LISTENER_FD)],
        setsid=True,
        setsigmask=[],
        setsigdef=[signal.SIGPIPE, signal.SIGXFSZ],
    )
