"""What dsup itself has printed into a log: where its run is, and its panels.

A panel is what dsup concluded while it saw everything. But in a log anybody may have
printed it: it is quoted, and proves nothing.
"""

from __future__ import annotations

import re
from typing import Final

from dsup.facts.logs.kept import Kept
from dsup.facts.logs.line import LogLine
from dsup.facts.logs.said import Panel
from dsup.facts.logs.shown import shown

_STARTED: Final = re.compile(
    r"dsup: (?:attempt \d{1,6}: )?(\d{1,6}) ranks? of .{1,300}?"
    r"(?:; | journal |logs )in (/.{1,400}?)(?:; OMP_NUM_THREADS.{0,40})?$"
)
_HEADER: Final = re.compile(r"(?:[━=]{1,4} )?dsup [━=] attempt (\d{1,6}) failed(?: |$)")
_RANKS: Final = re.compile(
    r"ranks? (\d{1,6}(?:-\d{1,6})?(?:, \d{1,6}(?:-\d{1,6})?(?![\d:.]))*)"
)
_RULE: Final = "━= "
_LINES_MAX: Final = 24
_RANKS_MAX: Final = 4096
_KEYS: Final = ("cause", "first")


def is_header(text: str) -> bool:
    """Return whether a line is the upper rule of a panel."""
    return "dsup " in text[:16] and _HEADER.match(text) is not None


def is_start(text: str) -> bool:
    """Return whether a line says that dsup starts ranks."""
    return text.startswith("dsup: ") and _STARTED.match(text[:1000]) is not None


class OwnWords:
    """Reads dsup's own lines.

    Attributes:
        panels: all of them.
        directory: where the run is; empty where no line tells.
        world: how many ranks it has; None where no line tells.
    """

    def __init__(self) -> None:
        self.panels: Kept[Panel] = Kept(50, 50)
        self.directory = ""
        self.world: int | None = None
        self._panel: _Open | None = None

    @property
    def open(self) -> bool:
        """A panel is being read."""
        return self._panel is not None

    def feed(self, line: LogLine) -> bool:
        """Take in a line; return whether it is dsup's."""
        text = line.text
        if line.ranked:  # a rank that prints one: dsup's own has no rank before it
            self.finish()
            return False
        if is_header(text):
            self.finish()
            self._panel = _Open(line)
            return True
        if self._panel is not None:
            if self._panel.feed(text):
                return True
            self.finish()
        if not text.startswith("dsup: "):
            return False
        found = _STARTED.match(text[:1000])
        if found:
            self.world, self.directory = int(found[1]), shown(found[2])
        return True

    def finish(self) -> None:
        """Note that the panel ends here."""
        if self._panel is not None and self._panel.whole:
            self.panels.add(self._panel.panel())
        self._panel = None


class _Open:
    """A panel that is being read."""

    def __init__(self, line: LogLine) -> None:
        found = _HEADER.match(line.text)
        self._line = line
        self._number = int(found[1]) if found else 0
        self._lines = 0
        self._rows: dict[str, str] = {}
        self._blank = False
        self.sentence = ""

    def feed(self, text: str) -> bool:
        """Take in a line; return whether it is of the panel."""
        self._lines += 1
        if self._lines > _LINES_MAX or (self._blank and not text.strip(_RULE)):
            return False
        if not text.strip():
            self._blank = True
        elif not self._blank:
            self.sentence = f"{self.sentence} {text.strip()}".strip()
        key, _, value = text.strip().partition(" ")
        if self._blank and key in _KEYS:
            self._rows.setdefault(key, value.strip())
        return True

    @property
    def whole(self) -> bool:
        """It has a sentence and a cause, as each of dsup's has."""
        return bool(self.sentence) and "cause" in self._rows

    def panel(self) -> Panel:
        """Return what was read."""
        line, cause = self._line, self._rows.get("cause", "").partition(",")
        return Panel(
            shown(self.sentence),
            self._number,
            cause[0].strip(),
            _ranks(self._rows.get("first", "")),
            line.file,
            line.number,
            line.order,
            line.at_s,
        )


def _ranks(text: str) -> tuple[int, ...]:
    found = _RANKS.match(text)
    known: set[int] = set()
    for part in found[1].split(", ") if found else ():
        low, _, high = part.partition("-")
        first, last = int(low), int(high or low)
        known.update(range(first, min(last, first + _RANKS_MAX) + 1))
    return tuple(sorted(known))[:_RANKS_MAX]
