"""One record on several lines, as an editor or a mail program wrapped a copy of it.

The kernel writes a record in one line. So a line that is indented deeper than the one
before it, and has no time or sign of its own, is that record's rest if the record is
plainly cut short and this is how the kernel would go on; else it is a line of its own.

Source: copies in public reports.
"""

from __future__ import annotations

import re
from typing import Final

from dsup.facts.kernel import Record

_LINES_MAX: Final = 3
"""A record has some hundred characters, and such a line at least forty."""

_CRASH_GOES_ON: Final = re.compile(
    r"(?:[re]?ip|nip|sp|error|addr)[: ]|in [^\s\[]{1,255}\["
)
_CUT_SHORT: Final = (
    (
        re.compile(
            r"(?:traps: )?.{1,15}\[\d{1,10}\]:? (?:segfault |trap |(?:general|control) "
            r"protection)(?!.{0,400} in \S)",
            re.DOTALL,
        ),
        _CRASH_GOES_ON,
    ),
    (
        re.compile(
            r"(?:(?:memory cgroup )?out of memory(?: \(oom_kill_allocating_task\))?: )?"
            r"killed process \d{1,10}(?!.{0,400}anon-rss:)",
            re.IGNORECASE | re.DOTALL,
        ),
        re.compile(r"\(|total-vm:|anon-rss:|UID"),
    ),
    (
        re.compile(r"(?:memory cgroup )?out of memory:\s*\Z", re.IGNORECASE),
        re.compile(r"kill(?:ed)? process \d", re.IGNORECASE),
    ),
    (
        re.compile(r"oom-kill:constraint=CONSTRAINT_(?!.{0,4000},pid=\d)", re.DOTALL),
        re.compile(
            r",?(?:nodemask|cpuset|mems_allowed|oom_memcg|task_memcg|task|pid)="
        ),
    ),
    (
        re.compile(r"NVRM: Xid \([^)\n]{1,60}\): \d{1,6},(?![^\n]{0,200}name=)"),
        re.compile(r"(?:pid|name)='?[\w<]"),
    ),
    (
        re.compile(r"NVRM: Xid \([^)\n]{1,60}\):\s*\Z"),
        re.compile(r"\d{1,6},"),
    ),
    (
        re.compile(r"cgroup: fork rejected by pids controller in\s*\Z"),
        re.compile(r"/"),
    ),
)
"""How a record begins whose end is missing, and how its next line then does."""


class Wrapped:
    """The record that was read last, while its rest may follow."""

    def __init__(self) -> None:
        self._text = ""
        self._indentation = 0
        self._awaited: re.Pattern[str] | None = None
        self._lines = 0

    def begin(self, line: bytes, text: str) -> None:
        """Take in a line that is a record, and what is said in it."""
        self._text, self._lines = text, 0
        self._indentation = _indentation(line)
        self._awaited = _next_of(text)

    def rest(self, line: bytes) -> Record | None:
        """Return a line's text as the rest of the record; None if it is not."""
        awaited, self._awaited = self._awaited, None
        if awaited is None or _indentation(line) <= self._indentation:
            return None
        text = line.decode(errors="backslashreplace").strip()
        if not awaited.match(text):
            return None
        whole = self._text.endswith(" ") or self._text.startswith("oom-kill:")
        text = text if whole else f" {text}"
        self._text += text
        self._lines += 1
        if self._lines < _LINES_MAX:
            self._awaited = _next_of(self._text)
        return Record(None, None, text, goes_on=True)


def _next_of(text: str) -> re.Pattern[str] | None:
    """Return how a record goes on that is cut short; None if it is whole."""
    return next((rest for head, rest in _CUT_SHORT if head.match(text)), None)


def _indentation(line: bytes) -> int:
    return len(line) - len(line.lstrip(b" \t"))
