"""What a service manager is told: ready, status, stopping, and signs of life.

Source: https://www.freedesktop.org/software/systemd/man/latest/sd_notify.html
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from typing import Final

from dsup.core.state import NEVER

_US_PER_S: Final = 1_000_000
_STATUS_MAX_CHARS: Final = 200


class Service:
    """The service manager's ear, if there is one; nothing here blocks or fails.

    The watchdog's WATCHDOG_PID names the main process, which is the guard; the unit's
    NotifyAccess=all lets the agent speak for it.

    Args:
        environment: what dsup was started with.

    Attributes:
        due_s: when ``beat`` is due, agent clock, seconds; ``NEVER`` without a watchdog.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        path = environment.get("NOTIFY_SOCKET", "")
        self._address = f"\0{path[1:]}" if path.startswith("@") else path
        self._every_s = _interval_s(environment)
        self._status = ""
        self.due_s = -NEVER if self._address and self._every_s < NEVER else NEVER

    def ready(self) -> None:
        """Tell that the ranks run."""
        self._send("READY=1")

    def status(self, text: str) -> None:
        """Tell in a line how it stands, if that is news."""
        if text != self._status:
            self._status = text
            self._send(f"STATUS={text[:_STATUS_MAX_CHARS]}")

    def stopping(self) -> None:
        """Tell that the run is about to end."""
        self._send("STOPPING=1")

    def beat(self, now_s: float) -> None:
        """Give a sign of life, if one is due."""
        if now_s >= self.due_s:
            self.due_s = now_s + self._every_s
            self._send("WATCHDOG=1")

    def _send(self, message: str) -> None:
        if not self._address:
            return
        try:
            channel = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        except OSError:
            return
        with channel:
            channel.setblocking(False)
            try:
                channel.sendto(os.fsencode(message), self._address)
            except (OSError, ValueError):
                return  # nobody listens, or not now: the run does not depend on it


def _interval_s(environment: Mapping[str, str]) -> float:
    """Return half of what the watchdog waits, seconds; ``NEVER`` without one."""
    word = environment.get("WATCHDOG_USEC", "")
    known = word.isascii() and word.isdigit() and int(word) > 0
    return int(word) / _US_PER_S / 2 if known else NEVER
