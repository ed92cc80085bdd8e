"""A rank that takes its time, and hangs never: ``lively.py KIND SECONDS LONG_S``.

For so many seconds it takes a step every 50 ms. By KIND, something takes LONG_S:
``compile``: the first step; ``eval``: now and then, in a phase; ``unwrapped``: every
hundredth step; ``mixed``: a checkpoint, an evaluation in a phase, and one without.
"""

import sys
import time

import act

import dsup_runtime as rt

KIND, SECONDS, LONG_S = sys.argv[1], float(sys.argv[2]), float(sys.argv[3])
STEP_S = 0.05


def busy(seconds):
    """Compute for so long, as a step does."""
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        sum(range(1000))


def pause(step):
    """Take long, where this kind does at such a step."""
    if KIND == "compile" and step == 1:
        busy(LONG_S)
    elif KIND == "unwrapped" and step % 100 == 0:
        busy(40 * STEP_S)
    elif KIND == "eval" and step % 100 == 0:
        with rt.phase("eval"):
            act.pause(LONG_S)
    elif KIND == "mixed" and step % 200 == 0:
        with rt.phase("checkpoint" if step % 400 else "eval"):
            act.pause(LONG_S)
    elif KIND == "mixed" and step % 150 == 0:
        busy(40 * STEP_S)


def main():
    """Take steps until the time is over."""
    end_s = time.monotonic() + SECONDS
    step = 0
    while time.monotonic() < end_s:
        step += 1
        pause(step)
        act.pause(STEP_S)
        rt.beat(step)
    act.emit("done", step=step)


if __name__ == "__main__":
    main()
