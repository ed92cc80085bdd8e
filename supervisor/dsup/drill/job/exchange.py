"""What the ranks of a drill and whoever drills them tell each other, by files.

``orders/RANK`` tells one rank what to do at its next step, once; ``orders/finish`` has
all of them end well. ``told.jsonl`` gets a line for whatever a rank tells.
"""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from dsup_runtime.worker_info import Info

FINISH: Final = "finish"
ORDERS: Final = "orders"
TOLD: Final = "told.jsonl"


class Exchange:
    """One rank's side.

    Args:
        home: the directory of the drill.
        own: who this rank is.
    """

    def __init__(self, home: str, own: Info) -> None:
        self.home = home
        self._own = own
        self._orders = os.path.join(home, ORDERS)
        self._order = os.path.join(self._orders, str(own.rank))
        self._told = os.path.join(home, TOLD)

    def tell(self, what: str, **more: object) -> None:
        """Tell something, with when and who."""
        own = self._own
        line = {"what": what, "rank": own.rank, "attempt": own.attempt, **more}
        line |= {"pid": os.getpid(), "at_s": time.monotonic()}
        fd = os.open(self._told, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(fd, json.dumps(line).encode() + b"\n")
        finally:
            os.close(fd)

    def order(self) -> str:
        """Return what this rank is to do now, and forget it; "" for nothing."""
        try:
            with open(self._order, encoding="ascii") as file:
                order = file.read().strip()
            os.unlink(self._order)
        except FileNotFoundError:
            return ""
        return order

    def is_to_finish(self) -> bool:
        """Return whether all ranks are to end well."""
        return os.path.exists(os.path.join(self._orders, FINISH))
