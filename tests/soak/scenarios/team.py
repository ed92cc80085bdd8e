"""Ranks of a real gloo group that need each other at every step, and some that fail.

``team.py MODULE:FUNCTION RANK[,RANK] [STEPS]``: those ranks call the function, which
stands in a file beside this one, after so many steps; with ``-`` before they join the
others. If it returns, they go on.
"""

import importlib
import os
import sys
import threading
from datetime import timedelta

WAIT_S = float(os.environ.get("TEAM_WAIT_S", "6"))
JOIN_S = float(os.environ.get("TEAM_JOIN_S", "60"))
RANK = int(os.environ["RANK"])


def main():
    """Join, step, and fail where it is one's turn."""
    place, _, name = sys.argv[1].partition(":")
    culprits = map(int, sys.argv[2].split(","))
    steps = sys.argv[3] if sys.argv[3:] else "3"
    act = getattr(importlib.import_module(place), name) if RANK in culprits else None
    if act and steps == "-":
        act()
    import torch
    import torch.distributed as dist
    from torch.distributed.distributed_c10d import _set_pg_timeout

    # Ranks start at different speeds on a busy machine, so to join has time.
    dist.init_process_group("gloo", timeout=timedelta(seconds=JOIN_S))
    _set_pg_timeout(timedelta(seconds=WAIT_S))
    number = torch.ones(4)
    for _ in range(0 if steps == "-" else int(steps)):
        dist.all_reduce(number)
    if act:
        act()
    rest = threading.Event().wait
    while True:
        dist.all_reduce(number)
        rest(0.02)


if __name__ == "__main__":
    main()
