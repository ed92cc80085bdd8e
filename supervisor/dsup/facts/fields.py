"""Fields of JSON that nobody vouches for: each is what it should be, or nothing.

What a rank tells is read so: one field that is garbage does not cost the others. Pure.
"""

from __future__ import annotations

import json
from typing import Any, Final

from dsup.core.printable import printable

NAME_MAX_CHARS: Final = 200
VERSION: Final = 1
"""``v`` of every note."""


def loads(raw: bytes) -> dict[str, Any]:
    """Return the fields of an object; none if it is no object."""
    try:
        fields = json.loads(raw)
    except (ValueError, RecursionError):
        return {}
    return fields if isinstance(fields, dict) else {}


def loads_list(raw: bytes) -> list[Any]:
    """Return the items of a list; none if it is no list."""
    try:
        items = json.loads(raw)
    except (ValueError, RecursionError):
        return []
    return items if isinstance(items, list) else []


def word(value: object, limit: int) -> str:
    """Return a printable text of one line, cut at its end; empty if it is no text."""
    return printable(value[:limit])[:limit] if isinstance(value, str) else ""


def number(value: object, limit: int) -> int | None:
    """Return a whole number from 0 up to a limit; None if it is none."""
    return value if type(value) is int and 0 <= value < limit else None
