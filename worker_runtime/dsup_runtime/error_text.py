"""What an exception says of itself, whatever a class of the user's own makes of that.

It is told to other ranks and written into files, where one that cannot be worded must
not be the end of what is under way.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

_TEXT_MAX_CHARS: Final = 2000
_NAME_MAX_CHARS: Final = 200


def describe(error: BaseException) -> str:
    """Return type and text of an exception, in at most 2000 characters."""
    return f"{name_of(error)}: {text_of(error)}"[:_TEXT_MAX_CHARS]


def text_of(error: object) -> str:
    """Return an exception's own text, whatever its class makes of ``str``."""
    try:
        return str(error)
    except KeyboardInterrupt:  # as a rule of whoever sits at the terminal
        raise
    except BaseException:  # noqa: BLE001 (a __str__ of the user's own, even an exit)
        return "<exception str() failed>"


def name_of(error: BaseException) -> str:
    """Return the name of an exception's class, in at most 200 characters."""
    return type(error).__name__[:_NAME_MAX_CHARS]


def note(error: BaseException, text: str) -> None:
    """Add a note to an exception, if it takes notes; never raise."""
    with suppress(Exception):  # a __notes__ that is no list, or a class of its own mind
        error.add_note(text)
