"""Host torch's TCPStore for the ranks of one attempt; run with the job's own Python.

Usage: ``python store.py FD HOST PORT WORLD_SIZE`` with a bound, listening socket as
descriptor FD. Ends when it is killed.
"""

from __future__ import annotations

import signal
import sys
from datetime import timedelta


def main() -> None:
    """Serve until killed."""
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    fd, host, port, world_size = sys.argv[1:]
    store = TCPStore(
        host_name=host,
        port=int(port),
        world_size=int(world_size),
        is_master=True,
        timeout=timedelta(seconds=300),
        wait_for_workers=False,
        master_listen_fd=int(fd),
        use_libuv=True,
    )
    signal.pause()
    del store


if __name__ == "__main__":
    main()
