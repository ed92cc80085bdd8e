"""Whoever asks how a run stands again and again, aside, so that keys are heard."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from dsup.cli.run_status import status_of
from dsup.core.errors import DsupError


def is_final(document: Mapping[str, Any]) -> bool:
    """Return whether a run is over: its status stays what it is."""
    return document.get("live") is not True and document.get("outcome") != "running"


class Asker:
    """Asks until the run is over; the last answer stands.

    Args:
        path: the run directory.
        document: the first answer.
        every_s: how often to ask, seconds.

    Attributes:
        document: the last answer.
        answered_s: when it came, monotonic, seconds.
        trouble: why there was none since; empty where there was.
    """

    def __init__(self, path: str, document: Mapping[str, Any], every_s: float) -> None:
        self.document = document
        self.answered_s = time.monotonic()
        self.trouble = ""
        self._path = path
        self._every_s = every_s

    def start(self, wake: Callable[[], None]) -> None:
        """Begin.

        Args:
            wake: called after each answer, on another thread.
        """
        threading.Thread(target=self._ask, args=(wake,), daemon=True).start()

    def _ask(self, wake: Callable[[], None]) -> None:
        while not is_final(self.document):
            time.sleep(self._every_s)
            try:
                self.document = status_of(self._path)
            except (DsupError, OSError) as error:
                self.trouble = str(error)
            else:
                self.answered_s, self.trouble = time.monotonic(), ""
            wake()
