"""What dsup's own streams are."""

from __future__ import annotations

import os
from typing import NamedTuple


class Terminal(NamedTuple):
    """Which of dsup's streams are a terminal.

    Attributes:
        talks: a person can type and read here: stdin and stdout are a terminal, and
            dsup is in its foreground.
        shows: stdout and stderr are a terminal.
    """

    talks: bool = False
    shows: bool = False


def terminal() -> Terminal:
    """Return what the streams of this process are."""
    into, out, err = map(os.isatty, range(3))
    return Terminal(talks=into and out and _in_foreground(), shows=out and err)


def _in_foreground() -> bool:
    try:
        return os.tcgetpgrp(0) == os.getpgrp()
    except OSError:
        return False
