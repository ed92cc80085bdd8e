"""One line of somebody else's log, with everything its prefixes tell. Values only."""

from __future__ import annotations

from typing import NamedTuple


class Place(NamedTuple):
    """Who wrote a line, as far as its prefixes tell; None where they do not.

    Attributes:
        rank: GLOBAL rank.
        local_rank: on its node.
        node: name or number of the node, as printed; empty if unknown.
        pid: of the process; None if unknown.
        label: the launcher's own prefix as printed, such as ``default3`` or ``1,3``:
            lines of one label are one stream; empty for none.
    """

    rank: int | None = None
    local_rank: int | None = None
    node: str = ""
    pid: int | None = None
    label: str = ""


class LogLine(NamedTuple):
    """One line, clean.

    Attributes:
        text: printable; prefixes, colours, boxes and progress bars taken off, its
            indentation kept. What one physical line holds of several statements (a
            progress bar with an error glued to it, two prefixes) is several lines.
        place: who wrote it.
        file: name of the file, as it was given.
        number: its line number there, from 1.
        order: grows by one from line to line of everything that is read.
        at_s: its own time stamp, seconds (of CLOCK_REALTIME where it has a zone or
            date, else only good for comparing lines of one file); None for none.
        ranked: torch's ``[rank3]: `` stood before it.
        level: ``E``, ``W``, ``I`` … of a logger's prefix that was taken off; empty for
            none.
        logger: what else that prefix said: module, file:line of the source; empty.
        zoned: the clock of ``at_s`` tells its zone.
    """

    text: str
    place: Place
    file: str
    number: int
    order: int
    at_s: float | None = None
    ranked: bool = False
    level: str = ""
    logger: str = ""
    zoned: bool = False
