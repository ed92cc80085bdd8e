"""Dumps of flight recorders that lie among somebody else's logs: found and read.

A path that the user names is followed; inside a directory links are not, and nothing
but regular files is opened. What is in them is for ``facts.flight_recorder``.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from dsup.core.printable import printable
from dsup.facts.flight_recorder import DUMP_MAX_BYTES, Trace, of_dump

DUMPS_MAX: Final = 1024
DEPTH_MAX: Final = 8
ENTRIES_MAX: Final = 200_000

_NAME: Final = re.compile(
    r"(?:^|.*[._-])(?:trace|fr|flight[a-z_]{0,16})(?:[._-]?rank)?[._-]?"
    r"(?P<rank>\d{1,6})(?:\.(?:json|pickle|pkl|bin|txt))?$",
    re.IGNORECASE,
)
_FLAGS: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class Dump(NamedTuple):
    """A trace and the file it stands in, printable."""

    trace: Trace
    file: str


class TraceFiles:
    """The dumps below some paths.

    Args:
        paths: files and directories; others are left out.

    Attributes:
        dumps: what they hold, by directory.
        remarks: what could not be read and why, a sentence each.
        rest: paths that are no dump.
    """

    def __init__(self, paths: Sequence[str]) -> None:
        self.dumps: dict[str, dict[int, Dump]] = {}
        self.remarks: list[str] = []
        self.rest: list[str] = []
        self._left, self._entries = DUMPS_MAX, ENTRIES_MAX
        for path in paths:
            if os.path.isdir(path):
                self._search(path)
                self.rest.append(path)
            elif not self._add(path, follow=True):
                self.rest.append(path)

    def _search(self, top: str) -> None:
        for path in sorted(_named(top, 0, self)):
            if not self._add(path, follow=False):
                name = printable(path)
                self.remarks.append(
                    f"cannot read {name} as a flight recorder's dump, because it is "
                    "none, or is cut"
                )

    def count(self, entries: int) -> bool:
        """Count what was looked at; return whether more may be."""
        self._entries -= entries
        return self._entries > 0

    def _add(self, path: str, *, follow: bool) -> bool:
        """Take in a dump; return whether it was one."""
        named = _NAME.match(os.path.basename(path))
        if named is None:
            return False
        if self._left <= 0:
            return True
        trace = of_dump(_read(path, follow=follow), int(named["rank"]))
        if trace is None:
            return False
        self._left -= 1
        there = self.dumps.setdefault(os.path.dirname(path), {})
        there[trace.rank] = Dump(trace, printable(path))
        return True


def _named(directory: str, depth: int, files: TraceFiles) -> Iterator[str]:
    """Yield the files that are named like a dump."""
    try:
        entries = list(os.scandir(directory))
    except OSError:
        return  # whoever looks for logs there says why
    if not files.count(len(entries)):
        return
    for entry in entries:
        if entry.is_file(follow_symlinks=False) and _NAME.match(entry.name):
            yield entry.path
        elif entry.is_dir(follow_symlinks=False) and depth < DEPTH_MAX:
            yield from _named(entry.path, depth + 1, files)


def _read(path: str, *, follow: bool) -> bytes:
    """Return a regular file; nothing if it is none, or is too large."""
    try:
        fd = os.open(path, _FLAGS if follow else _FLAGS | os.O_NOFOLLOW)
    except OSError:
        return b""
    with open(fd, "rb") as file:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or found.st_size > DUMP_MAX_BYTES:
            return b""
        try:
            return file.read(DUMP_MAX_BYTES)
        except OSError:
            return b""
