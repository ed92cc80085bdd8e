"""Every check, in the order in which they are shown within their groups."""

from __future__ import annotations

from typing import Final

from dsup.checkup.checks import (
    gpu_setup,
    gpus,
    limits,
    network,
    node,
    sight,
    storage,
    variables,
)
from dsup.checkup.finding import Check

CHECKS: Final[tuple[Check, ...]] = (
    *node.CHECKS,
    *gpus.CHECKS,
    *gpu_setup.CHECKS,
    *network.CHECKS,
    *storage.CHECKS,
    *limits.CHECKS,
    *variables.CHECKS,
    *sight.CHECKS,
)
