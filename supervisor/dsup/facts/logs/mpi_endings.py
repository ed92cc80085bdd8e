"""Ends of ranks as MPI launchers tell them, some of them over several lines.

Source: Open MPI's help-orterun and PRRTE's help-prun texts, MPICH's Hydra, Intel MPI,
horovod's gloo launcher.
"""

from __future__ import annotations

import re
from typing import Final

from dsup.facts.logs.kept import Kept
from dsup.facts.logs.line import LogLine, Place
from dsup.facts.logs.said import End
from dsup.facts.logs.shown import shown

_NOTICED: Final = re.compile(
    r"noticed that process rank (\d{1,6}) with PID (\S{1,20}) on node (\S{1,255})"
    r" exited on(?: signal (\d{1,3})|$)"
)
_SIGNAL: Final = re.compile(r"signal (\d{1,3}) \(")
_NAMED: Final = re.compile(
    r"Process name: +(?:\[+[\w.@-]{1,255},\d{1,9}\],(\d{1,6})\]"
    r"|\[[^\]]{1,255}[,@]\d{1,9},(\d{1,6})\]|([\w.-]{1,255})\[(\d{1,6})\]|(\d{1,6})$)"
)
_CODE: Final = re.compile(r"(?i)^=? {0,8}exit(?: code|ed with)?: +(-?\d{1,5})")
_HYDRA: Final = re.compile(
    r"=   (?:RANK (\d{1,6}) )?PID (\d{1,9}) RUNNING AT (\S{1,255})"
)
_HYDRA_END: Final = re.compile(
    r"=   (?:EXIT CODE: (-?\d{1,5})|KILLED BY SIGNAL: (\d{1,3}))"
)
_ABORT: Final = re.compile(
    r"MPI_ABORT was invoked on rank (\d{1,6}) in communicator .{1,200}?"
    r"(?:with errorcode (-?\d{1,9}))?"
)
_LINES_MAX: Final = 6
_PID_CHARS: Final = 10


_SIGNALLED: Final = range(129, 192)


def of_shell(code: int) -> int:
    """Return minus the signal for an exit code of 128 and more, as shells make it."""
    return 128 - code if code in _SIGNALLED else code


class MpiEndings:
    """Reads what MPI launchers tell.

    Args:
        ends: where to put it.
    """

    def __init__(self, ends: Kept[End]) -> None:
        self._ends = ends
        self._named: tuple[LogLine, Place] | None = None
        self._left = 0

    def feed(self, line: LogLine) -> bool:
        """Take in a line; return whether it tells of an end."""
        text = line.text
        if self._named and self._follow(text):
            return True
        if "exited on" in text or "Process name:" in text:
            self._noticed(line, text)
        elif "RUNNING AT" in text:
            found = _HYDRA.search(text)
            if found:
                rank = int(found[1]) if found[1] else None
                self._name(line, Place(rank, node=found[3], pid=int(found[2])))
        elif "MPI_ABORT was invoked on rank" in text:
            found = _ABORT.search(text)
            if found:
                self._add(line, Place(rank=int(found[1])), int(found[2] or 1))
        else:
            return False
        return True

    def finish(self) -> None:
        """Note that no line follows."""
        if self._named:
            self._add(*self._named, None)
        self._named = None

    def _noticed(self, line: LogLine, text: str) -> None:
        found = _NOTICED.search(text)
        if found:
            pid = (
                int(found[2])
                if found[2].isdecimal() and len(found[2]) < _PID_CHARS
                else 0
            )
            place = Place(int(found[1]), node=found[3], pid=pid or None)
            if found[4]:
                self._add(line, place, -int(found[4]))
            else:
                self._name(line, place)
            return
        named = _NAMED.search(text)
        if named:
            # A slot of a host is a local rank, and of which node nobody tells.
            rank = named[1] or named[2] or named[5]
            label = f"{named[3]}[{named[4]}]" if named[3] else ""
            self._name(
                line,
                Place(int(rank) if rank else None, node=named[3] or "", label=label),
            )

    def _name(self, line: LogLine, place: Place) -> None:
        self.finish()
        self._named, self._left = (line, place), _LINES_MAX

    def _follow(self, text: str) -> bool:
        """Look for the status of the process that a line above has named."""
        if self._named is None:
            return False
        line, place = self._named
        code, hydra = _CODE.search(text.strip()), _HYDRA_END.search(text)
        signal = _SIGNAL.match(text.strip())
        if signal:
            self._add(line, place, -int(signal[1]))
        elif hydra and hydra[2]:
            self._add(line, place, -int(hydra[2]))
        elif hydra or code:
            told = (hydra and hydra[1]) or (code and code[1]) or 0
            self._add(line, place, of_shell(int(told)))
        else:
            self._left -= 1
            if self._left > 0:
                return False
            self._add(line, place, None)
        self._named = None
        return bool(hydra or code or signal)

    def _add(self, line: LogLine, place: Place, status: int | None) -> None:
        self._ends.add(
            End(
                place,
                status,
                "mpirun",
                shown(line.text),
                line.file,
                line.number,
                line.order,
                line.at_s,
            )
        )
