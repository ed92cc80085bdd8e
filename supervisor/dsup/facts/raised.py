"""An exception that a worker told of, by a note or by its error.json."""

from __future__ import annotations

from typing import NamedTuple


class Raised(NamedTuple):
    """An exception that nobody caught.

    Attributes:
        rank: whose worker it was.
        type: qualified name without ``builtins.``, such as ``ValueError`` or
            ``torch.OutOfMemoryError``.
        text: ``str(exception)``, capped and printable; may have several lines.
        caught_s: when the hook saw it (after ``finally`` blocks), CLOCK_MONOTONIC of
            the node, seconds; None where nothing trustworthy tells.
        source: ``note`` or ``error_file``.
        pid: the process that raised; it may be a forked child of the rank's.
        thread: name of the thread; empty for the main thread.
        file: where the innermost frame of the user's code is; empty if unknown.
        line: the line there, from 1; None if unknown.
        function: its function; empty if unknown.
        causes: ``(type, text)`` of the exceptions it was raised from or during, the
            nearest first; at most four.
        handed: the program handed it to the hook itself, and went on after it.
    """

    rank: int
    type: str
    text: str
    caught_s: float | None
    source: str
    pid: int | None = None
    thread: str = ""
    file: str = ""
    line: int | None = None
    function: str = ""
    causes: tuple[tuple[str, str], ...] = ()
    handed: bool = False
