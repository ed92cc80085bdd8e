"""The failure summary of torchrun's agent: one end for each of its entries.

Symptom: rows of ``name : value`` below ``[0]:``, after ``Failures:``, ``Other
Failures:`` or ``Root Cause``. The layout has changed with torch's versions and suffers
from copying: rows are looked for by their names alone, wherever they stand.

Source: torch.distributed.elastic.multiprocessing.errors of torch 1.8 to 2.13.
"""

from __future__ import annotations

import re
from calendar import timegm
from time import strptime
from typing import Final

from dsup.facts.logs.kept import Kept
from dsup.facts.logs.line import LogLine, Place
from dsup.facts.logs.said import End
from dsup.facts.logs.shown import shown

_ENTRY: Final = re.compile(r"\[\d{1,6}\]:$")
_RULE: Final = re.compile(r"[=\-*]{6,400}$")
_TIME: Final = re.compile(r"\b(\d{4}-\d\d-\d\d)[_ T](\d\d:\d\d:\d\d)\b")
_HOST: Final = re.compile(r"\bhost {0,20}: {0,4}([\w.-]{1,255})")
_RANK: Final = re.compile(
    r"\brank {0,20}:? {0,4}(\d{1,6}) {0,4}\(local[_ ]rank: {0,4}(\d{1,6})\)"
)
_EXIT: Final = re.compile(
    r"exit ?code {0,20}: {0,4}(-?\d{1,5}) {0,4}\(pid: {0,4}(\d{1,9})\)"
)
_SIGNAL: Final = re.compile(
    r"[Ss]ignal (\d{1,3}) \(SIG\w{1,10}\) received by PID (\d{1,9})"
)
_LINES_MAX: Final = 60
_ROWS: Final = ("rank", "exit", "ignal ", "host", "time")


class Summaries:
    """Reads the failure summaries of a log.

    Args:
        ends: where to put what they tell.
    """

    def __init__(self, ends: Kept[End]) -> None:
        self._ends = ends
        self._entry: _Entry | None = None
        self._root = self._inside = self._headed = False

    def feed(self, line: LogLine) -> bool:
        """Take in a line; return whether it is of a summary."""
        text = line.text.strip()
        if self._heading(text):
            return True
        begins = self._entry is not None or self._begins(text)
        self._headed = _ENTRY.match(text) is not None
        if not begins:
            return False
        entry = self._entry = self._entry or _Entry(line)
        entry.feed(line, text)
        if entry.lines > _LINES_MAX or _RULE.match(text):
            self.finish()
        return True

    def _heading(self, text: str) -> bool:
        """Look for the heads of a summary, of its parts and of its entries."""
        if text.startswith(("Root Cause", "Failures:", "Other Failures")):
            self.finish()
            self._root, self._inside = text.startswith("Root"), True
            return True
        if _ENTRY.match(text):
            self.finish()
            return self._inside
        return False

    def _begins(self, text: str) -> bool:
        """Return whether a row may begin an entry whose head is not there."""
        if self._inside and any(row in text for row in _ROWS):
            return True
        if self._headed and text.startswith("time "):
            return True
        if text.startswith("traceback : Signal "):
            return True
        return "local_rank: " in text and _RANK.search(text) is not None

    def finish(self) -> None:
        """Hand on the entry that is being read: it ends here."""
        if self._entry and self._entry.told:
            self._ends.add(self._entry.end(root=self._root))
        self._entry = None


class _Entry:
    """One entry of a summary, as far as it has been read."""

    def __init__(self, line: LogLine) -> None:
        self.line = line
        self.lines = 0
        self.rank: int | None = None
        self.local: int | None = None
        self.pid: int | None = None
        self.status: int | None = None
        self.node = ""
        self.at_s: float | None = None
        self.text = ""

    @property
    def told(self) -> bool:
        """It tells who ended, or how."""
        return self.status is not None and bool(self.pid or self.rank is not None)

    def feed(self, line: LogLine, text: str) -> None:
        """Take in a row."""
        self.lines += 1
        rank, status = _RANK.search(text), _EXIT.search(text)
        by_signal, host = _SIGNAL.search(text), _HOST.search(text)
        if rank:
            self.rank, self.local = int(rank[1]), int(rank[2])
        if status:
            self.status, self.pid = int(status[1]), int(status[2])
        if by_signal:
            self.status, self.pid = -int(by_signal[1]), int(by_signal[2])
        if host:
            self.node = host[1]
        if status or by_signal:
            self.text, self.line = shown(text), line
        at = _TIME.search(text) if self.at_s is None else None
        if at:
            self.at_s = seconds(at[1], at[2])

    def end(self, *, root: bool) -> End:
        """Return what the entry tells."""
        line = self.line
        return End(
            Place(self.rank, self.local, self.node, self.pid),
            self.status,
            "root_cause" if root else "report",
            self.text,
            line.file,
            line.number,
            line.order,
            self.at_s,
        )


def seconds(date: str, time: str) -> float | None:
    """Return a time without zone as seconds of the epoch; None for an odd one."""
    try:
        return float(timegm(strptime(f"{date} {time}", "%Y-%m-%d %H:%M:%S")))
    except ValueError:
        return None
