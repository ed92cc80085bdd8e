"""A line on stderr from a process that must not wait for whoever reads it."""

from __future__ import annotations

import os
import select
from typing import Final

_STDERR: Final = 2
_LINE_MAX_BYTES: Final = 4096


def say(line: str) -> None:
    """Write a line to stderr if that takes it now; a stopped terminal costs no time.

    At most 4096 bytes: so much a pipe that is ready takes at once.
    """
    poll = select.poll()
    poll.register(_STDERR, select.POLLOUT)
    try:
        if poll.poll(0):
            os.write(_STDERR, f"{line}\n".encode(errors="replace")[-_LINE_MAX_BYTES:])
    except OSError:
        return
