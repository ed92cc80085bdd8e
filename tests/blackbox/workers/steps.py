"""A rank with a checkpoint a step, made by the rules that dsup reads; no torch.

Usage: ``steps.py ROOT STEPS FAILURE``. In each attempt rank 0 publishes one more step
than it was handed and then fails as told (``quit=3``, ``die=KILL``); once there are
STEPS steps, all ranks end well.
"""

import os
import sys

import act

from dsup_runtime import checkpoints


def main():
    """Go on from DSUP_RESUME_FROM, save a step, fail."""
    root, steps, failure = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    handed = os.environ["DSUP_RESUME_FROM"]
    act.emit("resumed", path=handed)
    done = int(handed.rpartition("-")[2] or 0)
    if done == steps:
        return
    if act.RANK != "0":
        act.pause(1000)
    folder = checkpoints.begin(root, done + 1, attempt=int(act.ATTEMPT))
    with open(os.path.join(folder, "state"), "w") as file:
        file.write(str(done + 1))
    checkpoints.commit(folder, done + 1)
    verb, _, value = failure.partition("=")
    act.VERBS[verb](value)


if __name__ == "__main__":
    main()
