"""What the last words of a rank say: its traceback, its crash report, its last line."""

from __future__ import annotations

from typing import NamedTuple


class LastWords(NamedTuple):
    """What the tails of a rank's streams show; empty where they do not show it.

    Attributes:
        exception: ``Type: text`` of the last uncaught Python exception on stderr.
        crash: the signal of a faulthandler report (``Fatal Python error: …``) or a
            C++ abort, such as ``Segmentation fault``, ``Aborted``, or ``terminate
            called …``.
        frame: where that happened, ``file:line in function``.
        line: last line of stderr that says something, colours and bars removed.
        lines: the last such lines of stderr, at most eight.
        number: number of ``line`` in the stderr log; None if unknown.
    """

    exception: str = ""
    crash: str = ""
    frame: str = ""
    line: str = ""
    lines: tuple[str, ...] = ()
    number: int | None = None
