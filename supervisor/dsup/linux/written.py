"""How much processes have written: /proc/PID/io, through files that stay open."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from typing import Final

_IO_BYTES: Final = 128
_FIELD: Final = b"wchar: "


class Written:
    """What some processes have written of their own accord.

    Args:
        pids: of processes, by whatever number.

    Attributes:
        deaf: what is written now is written because somebody asked for it, and does not
            count.
    """

    def __init__(self, pids: Mapping[int, int]) -> None:
        self.deaf = False
        self._files: dict[int, int] = {}
        self._asked_for: dict[int, int] = {}
        self._last: dict[int, int] = {}
        for number, pid in pids.items():
            with contextlib.suppress(OSError):
                path = f"/proc/{pid}/io"
                self._files[number] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def by(self, number: int) -> int | None:
        """Return how many bytes, to whatever, one has written; None if unknown."""
        raw = _written(self._files.get(number, -1))
        if raw is None:
            return None
        if self.deaf and number in self._last:
            self._asked_for[number] = raw - self._last[number]
        self._last[number] = raw - self._asked_for.get(number, 0)
        return self._last[number]

    def listen(self) -> None:
        """Count again, from now on."""
        if self.deaf:
            for number in self._files:
                self.by(number)
            self.deaf = False

    def close(self) -> None:
        """Close every file."""
        for fd in self._files.values():
            os.close(fd)
        self._files = {}


def _written(fd: int) -> int | None:
    try:
        _, found, rest = os.pread(fd, _IO_BYTES, 0).partition(_FIELD)
    except OSError:  # it has gone, and been collected
        return None
    number = rest.partition(b"\n")[0]
    return int(number) if found and number.isdigit() else None
