"""examples/train.py as it is, with evaluations: ``evaluates.py LONG_S ARGUMENTS``.

Every hundredth step all ranks evaluate, and in between rank 0 alone, while the others
wait for its next step. One evaluation of either kind takes LONG_S.
"""

import importlib
import sys
import threading
from pathlib import Path

import torch

import dsup_runtime as rt

sys.path.insert(0, str(Path(__file__).parents[3] / "examples"))
train = importlib.import_module("train")

EVERY = 100
LONG = {3, 6}
LONG_S = float(sys.argv.pop(1))
STEP = train.loss_of
made = [0]


@torch.no_grad()
def evaluate(model, rows, number):
    """Look how well the model does; now and then that takes very long."""
    with rt.phase("eval"):
        for _ in range(20):
            STEP(model.module, rows)
        if number in LONG:
            threading.Event().wait(LONG_S)


def step(model, rows):
    """Return the loss, as the example does; evaluate first where that is due."""
    made[0] += 1
    number, rest = divmod(made[0], EVERY)
    if rest == 0 and (number % 2 == 0 or rt.info().is_main):
        evaluate(model, rows, number)
    return STEP(model, rows)


if __name__ == "__main__":
    vars(train)["loss_of"] = step
    train.main()
