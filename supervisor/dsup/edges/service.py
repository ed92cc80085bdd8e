"""The service manager, told how the run stands: systemd's notify protocol.

The agent tells it through the guard, which alone is listened to where the unit says so
(``NotifyAccess=main``); nothing is started for it, and nobody is waited for. What
cannot be told now (a manager that is busy, or gone) is told with the next beat, and no
line is said about it: a manager that does not listen is no trouble of the run.

Source: https://www.freedesktop.org/software/systemd/man/latest/sd_notify.html
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from typing import Final

from dsup.core.printable import printable
from dsup.core.state import NEVER
from dsup.linux import notify

STATUS_MAX: Final = 200
"""Characters of a status; a message may have 4096 bytes."""

_RETRY_S: Final = 1.0
_DIGITS_MAX: Final = 20


class Service:
    """The manager that dsup was started by, if it was.

    Args:
        environment: what dsup was started with.
        pids: whom the watchdog may mean: the guard, which is the service's main
            process, and the agent.
        relay: what the guard passes on is written here, without waiting; None to tell
            the manager without it.

    Attributes:
        due_s: when ``beat`` tells that the agent lives, agent clock, seconds; NEVER
            where no watchdog waits for it.
    """

    def __init__(
        self,
        environment: Mapping[str, str],
        pids: Collection[int],
        relay: int | None = None,
    ) -> None:
        self._address = notify.address(environment.get("NOTIFY_SOCKET", ""))
        self._relay = relay
        self._every_s = _every_s(environment, pids) if self._address else NEVER
        self.due_s = NEVER if self._every_s == NEVER else -NEVER
        self._untold: dict[str, str] = {}

    def ready(self) -> None:
        """Tell that the ranks run: what was ordered after the service may start."""
        self._tell({"READY": "1"})

    def status(self, text: str) -> None:
        """Tell how the run stands, for ``systemctl status``."""
        self._tell({"STATUS": printable(text)[:STATUS_MAX]})

    def stopping(self, within_s: float) -> None:
        """Tell that the run is on its way out, and how long that may take.

        Args:
            within_s: what the manager waits at least, seconds, whatever its own limit.
        """
        wait_us = max(0, round(within_s * 1_000_000))
        self._tell({"STOPPING": "1", "EXTEND_TIMEOUT_USEC": f"{wait_us}"})

    def beat(self, now_s: float) -> None:
        """Tell that the agent lives, when it is due, and what could not be told before.

        Args:
            now_s: the present, agent clock, seconds.
        """
        if now_s >= self.due_s:
            told = self._tell({"WATCHDOG": "1"})
            self.due_s = now_s + (self._every_s if told else _RETRY_S)
        elif self._untold:
            self._tell({})

    def _tell(self, news: Mapping[str, str]) -> bool:
        """Send what is new and what is untold, of each kind the latest."""
        if not self._address:
            return False
        self._untold |= news
        lines = (f"{name}={value}" for name, value in self._untold.items())
        message = "\n".join(lines).encode(errors="replace")
        if not self._send(message):
            return False
        self._untold.clear()
        return True

    def _send(self, message: bytes) -> bool:
        if self._relay is None:
            return notify.send(message, self._address)
        try:
            os.write(self._relay, message)
        except OSError:
            return False
        return True


def _every_s(environment: Mapping[str, str], pids: Collection[int]) -> float:
    """Return the seconds between beats, half of what the watchdog waits for."""
    limit_us = environment.get("WATCHDOG_USEC", "")
    meant = environment.get("WATCHDOG_PID", "")
    if meant and meant not in map(str, pids):
        return NEVER
    if not (limit_us.isascii() and limit_us.isdigit() and len(limit_us) <= _DIGITS_MAX):
        return NEVER
    return int(limit_us) / 2_000_000 or NEVER
