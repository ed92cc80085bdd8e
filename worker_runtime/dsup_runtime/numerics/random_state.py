"""The state of every random generator that a training loop may have drawn from."""

from __future__ import annotations

import sys
from typing import Any, TypeAlias

RandomState: TypeAlias = dict[str, Any]


def read() -> RandomState:
    """Return the state of torch's generators, and of ``random``'s and numpy's.

    A module that nobody has imported has drawn nothing, so it is not imported here.
    All of this process's CUDA devices are read once CUDA is in use.
    """
    import torch

    state: RandomState = {"torch": torch.get_rng_state()}
    cuda: Any = torch.cuda  # is_initialized has no annotations
    if cuda.is_available() and cuda.is_initialized():
        state["cuda"] = cuda.get_rng_state_all()
    if python := sys.modules.get("random"):
        state["random"] = python.getstate()
    if numpy := sys.modules.get("numpy.random"):
        state["numpy"] = numpy.get_state()
    return state


def write(state: RandomState) -> None:
    """Put every generator back to where it was when ``read`` returned a state."""
    import torch

    torch.set_rng_state(state["torch"])
    if "cuda" in state:
        torch.cuda.set_rng_state_all(state["cuda"])
    if "random" in state:
        sys.modules["random"].setstate(state["random"])
    if "numpy" in state:
        sys.modules["numpy.random"].set_state(state["numpy"])
