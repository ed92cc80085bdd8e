"""The runtime's log, ``logging.getLogger("dsup_runtime")``: each line names its rank.

All ranks of a node often write to one console, where a line without a name is nobody's.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from dsup_runtime import contract

if TYPE_CHECKING:
    from collections.abc import MutableMapping


class _RankLog(logging.LoggerAdapter[logging.Logger]):
    def process(
        self, msg: object, kwargs: MutableMapping[str, Any]
    ) -> tuple[object, MutableMapping[str, Any]]:
        rank = contract.variable("RANK")
        return (f"rank {rank}: {msg}" if rank.isdecimal() else msg), kwargs


log = _RankLog(logging.getLogger("dsup_runtime"))
"""Without a launcher there is one process, and nothing to tell apart."""
