"""A rank that trains with the runtime, and says at which check it left and why.

The first argument is who wants a stop, ``KIND:RANK@STEP``, or ``-``; with a second one,
``gloo``, the ranks reduce at every step.
"""

import os
import sys

from act import RANK, emit, pause, wait

from dsup_runtime import heartbeat, stop

CODES = {"user": 0, "limit": 143, "preempt": 143, "peer": 1, "error": 1}
STEPS = 10**9


def meet():
    """Return what the ranks do together at a step."""
    if sys.argv[2:] != ["gloo"]:
        return lambda: pause(0.002)
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    numbers = torch.zeros(8)
    return lambda: dist.all_reduce(numbers)


def main():
    """Train until all ranks are to stop."""
    kind, _, place = sys.argv[1].partition(":")
    step_together = meet()
    for step in range(STEPS):
        step_together()
        heartbeat.beat(step)
        if place == f"{RANK}@{step}":
            stop.request_stop("enough", kind=kind)
        decided = stop.should_stop(step)
        if decided is not None:
            emit(
                "left",
                check=stop.checks(),
                kind=decided.kind,
                of=-1 if decided.rank is None else decided.rank,
                reason=decided.reason,
                step=decided.step,
            )
            os._exit(CODES[decided.kind])
        if step == 2:
            emit("ready")
            wait(f"ready*{os.environ['WORLD_SIZE']}")
    emit("done")


main()
