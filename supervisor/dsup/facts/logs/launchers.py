"""What belongs to a launcher: its exceptions, and the places in its code.

Source: torch.distributed (elastic, launch, run), accelerate, deepspeed, horovod,
colossalai; torch.multiprocessing's spawn.
"""

from __future__ import annotations

import re
from typing import Final

ENDS: Final = frozenset(
    {
        "ChildFailedError",
        "GeneratorExit",
        "KeyboardInterrupt",
        "ProcessExitedException",
        "ProcessRaisedException",
        "RemoteTraceback",
        "SignalException",
        "SystemExit",
        "_RemoteTraceback",
    }
)
"""Last parts of types that tell of somebody else's end, or of a wanted one."""

_CODE: Final = re.compile(
    r"/torch/distributed/(?:run|launch)\.py:"
    r"|/torch/distributed/launcher/"
    r"|/torch/distributed/elastic/(?:agent|rendezvous|multiprocessing/api)"
    r"|/accelerate/commands/|/deepspeed/launcher/|/horovod/runner?/"
    r"|/colossalai/cli/|/composer/cli/"
    r"|/bin/(?:torchrun|accelerate|deepspeed|horovodrun|composer|colossalai):"
)
_COMMAND: Final = (
    "--local_rank",
    "--local-rank",
    "--nproc",
    "torchrun",
    "torch.distributed.",
    "accelerate",
    "deepspeed",
    "/python",
    "'python",
)
_SPAWNED: Final = re.compile(
    r"process \d{1,6} terminated with (?:signal|exit code) "
    r"|-- Process \d{1,6} terminated with the following error"
)
_GATHERED: Final = (
    "Gloo job detected that one or more processes exited",
    "Horovod detected that one or more processes exited",
    "('Trials did not complete",
)


def of_launcher(frame: str) -> bool:
    """Return whether a frame, ``file:line in function``, is of a launcher's code."""
    return _CODE.search(frame) is not None


def retells(type_name: str, text: str, *, launcher: bool) -> bool:
    """Return whether an exception only tells of the end of another process.

    Args:
        type_name: as printed.
        text: its text.
        launcher: its traceback goes through a launcher's code.
    """
    last = type_name.rpartition(".")[2]
    if last in ENDS or _SPAWNED.search(text[:300]):
        return True
    if last == "CalledProcessError":
        return launcher or any(word in text for word in _COMMAND)
    return any(text.startswith(word) for word in _GATHERED)
