"""How long a phase of a rank may last. Light: the job of a run is made of it."""

from __future__ import annotations

import math
from typing import NamedTuple

from dsup_runtime.contract import PHASES


class Limits(NamedTuple):
    """How long a phase may last without a step, seconds; infinite for no limit.

    Attributes:
        train_s: None for a limit that is learned.
        unseen_s: for ranks that tell nothing; None for no limit.
    """

    init_s: float = 1800.0
    train_s: float | None = None
    eval_s: float = 3600.0
    checkpoint_s: float = 3600.0
    finish_s: float = 1800.0
    unseen_s: float | None = None


def shown(limits: Limits) -> str:
    """Return limits as ``--hang-after`` takes them: ``init=1800,train=auto``."""
    named = (f"{phase}={_shown(getattr(limits, f'{phase}_s'))}" for phase in PHASES)
    unseen = () if limits.unseen_s is None else (_shown(limits.unseen_s),)
    return ",".join((*named, *unseen))


def _shown(limit_s: float | None) -> str:
    if limit_s is None:
        return "auto"
    return "off" if math.isinf(limit_s) else f"{limit_s:.15g}"
