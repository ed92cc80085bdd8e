"""``dsup --version``."""

from __future__ import annotations

import os
import sys

from dsup import __version__


def version_text() -> str:
    """Return the versions that a report of a bug needs."""
    python = ".".join(map(str, sys.version_info[:3]))
    system = os.uname()
    return f"dsup {__version__} (Python {python}, {system.sysname} {system.release})"
