"""Host torch's TCPStore for the ranks of one attempt; run with the job's own Python.

Usage: ``python store.py FD`` with a bound, listening socket as descriptor FD and
MASTER_ADDR, MASTER_PORT and WORLD_SIZE in the environment. Ends when it is killed.
"""

from __future__ import annotations

import os
import signal
import sys
from datetime import timedelta


def main() -> None:
    """Serve until killed."""
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    store = TCPStore(
        host_name=os.environ["MASTER_ADDR"],
        port=int(os.environ["MASTER_PORT"]),
        world_size=int(os.environ["WORLD_SIZE"]),
        is_master=True,
        timeout=timedelta(seconds=300),
        wait_for_workers=False,
        master_listen_fd=int(sys.argv[1]),
        use_libuv=True,
    )
    signal.pause()
    del store


if __name__ == "__main__":
    main()
