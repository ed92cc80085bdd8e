"""One line of a log file as it stands there. Values only."""

from __future__ import annotations

from typing import NamedTuple


class RawLine(NamedTuple):
    """A physical line.

    Attributes:
        file: name of the file, printable, as it was given.
        number: of the line there, from 1. Where the number is not one more than that of
            the line before, what lies between was left out.
        data: its bytes, without the newline.
    """

    file: str
    number: int
    data: bytes
