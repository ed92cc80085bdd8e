"""What the prefixes of one line have told so far."""

from __future__ import annotations

from dsup.facts.logs.line import Place
from dsup.facts.logs.stamps import DATED_S, in_year_of, is_yearless


class Head:
    """Collects what prefixes tell; a later one knows better than an earlier.

    Args:
        place: what is known before the line is read, as from the name of its file.

    Attributes:
        place: who wrote the line.
        at_s: its own time stamp; None for none yet.
        outer_s: the first time stamp with a year: a viewer's or collector's, if
            there are two.
        zoned: the clock that a line's time is told by tells its zone.
        ranked: torch's own prefix was among them.
        level: one letter; empty for none.
        logger: module or source line; empty for none.
        is_rich: lines of this file have rich's columns.
        column: where rich's column of messages begins; 0 for no such column.
    """

    def __init__(self, place: Place) -> None:
        self._given = place
        self.place = place
        self.at_s: float | None = None
        self.outer_s: float | None = None
        self.zoned = False
        self.ranked = False
        self.level = ""
        self.logger = ""
        self.is_rich = False
        self.column = 0

    @property
    def is_log(self) -> bool:
        """Return whether a logger wrote the line."""
        return self.at_s is not None or bool(self.level)

    def launcher(
        self, label: str, *, rank: int | None = None, local: int | None = None
    ) -> None:
        """Take a launcher's label; of two on one line the second wrote what follows."""
        if self.place.label not in {"", self._given.label}:
            self.place = self._given._replace(node=self.place.node)
        known = self.place
        self.place = known._replace(
            label=label,
            rank=known.rank if rank is None else rank,
            local_rank=known.local_rank if local is None else local,
        )

    def worker(self, rank: int) -> None:
        """Take a global rank that the worker itself put before its line."""
        self.place = self.place._replace(rank=rank)
        self.ranked = True

    def process(self, pid: str, node: str = "") -> None:
        """Take a process and its node."""
        known = self.place
        self.place = known._replace(pid=int(pid), node=node or known.node)

    def time(self, at_s: float, *, zoned: bool = False) -> None:
        """Take a time stamp; the innermost is the statement's own.

        The first one with a year is a collector's clock; it also tells the year of one
        that has none.
        """
        if self.outer_s is not None and is_yearless(at_s):
            at_s = in_year_of(self.outer_s, at_s)
        if self.outer_s is None and at_s >= DATED_S:
            self.outer_s, self.zoned = at_s, zoned
        self.at_s = at_s

    def behind(self) -> Head:
        """Return what is known of a statement that stands behind this one's."""
        head = Head(self._given)
        head.place = self.place
        head.is_rich = self.is_rich
        head.outer_s = head.at_s = self.outer_s
        head.zoned = self.zoned
        return head
