"""Where the time of a run went, as the page shows it. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from dsup.core.ledger import Balance
from dsup.report.html.words import duration
from dsup.report.ledger import NAMES

_LETTER_PERCENT: Final = 0.7
"""What a letter below the bar takes of its width."""


class Share(NamedTuple):
    """A part of the time.

    Attributes:
        kind: its class in the style.
        percent: of the whole.
    """

    name: str
    seconds: float
    kind: str
    percent: float

    @property
    def time(self) -> str:
        """How long it is, in words."""
        return duration(self.seconds)

    @property
    def label(self) -> str:
        """What stands below it; empty where there is no room."""
        fits = self.percent > _LETTER_PERCENT * len(self.name)
        return self.name if fits else ""


class Spent(NamedTuple):
    """All of the time.

    Attributes:
        shares: its parts, what was of use first.
        whole: how long it is, in words.
        remark: what is to be known of it; empty for nothing.
    """

    shares: tuple[Share, ...]
    whole: str
    remark: str


def spent(found: Balance | None) -> Spent | None:
    """Return where the time went; None where nothing tells."""
    if found is None or found.wall_s <= 0:
        return None
    remark = ""
    if not found.by_steps:
        remark = (
            "No rank told its steps, so all the time that they ran is shown as one, "
            "whether it was of use or not."
        )
    return Spent(tuple(_shares(found)), duration(found.wall_s), remark)


def _shares(found: Balance) -> Iterator[Share]:
    useful = ("new steps", "steps") if found.by_steps else ("running", "run")
    parts = [(*useful, found.productive_s)]
    parts += [(NAMES[name], name, found.lost_s[name]) for name in NAMES]
    for name, kind, seconds in parts:
        percent = 100 * seconds / found.wall_s
        if seconds > 0:
            yield Share(name, seconds, kind, percent)
