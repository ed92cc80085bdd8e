"""A line as a fact quotes it. Pure."""

from __future__ import annotations

from typing import Final

from dsup.core.printable import printable

TEXT_MAX_CHARS: Final = 600


def shown(text: str) -> str:
    """Return a line that is safe to print, and not too long."""
    stripped = text.strip()
    if len(stripped) > TEXT_MAX_CHARS:
        stripped = stripped[:TEXT_MAX_CHARS] + " …"
    return printable(stripped)
