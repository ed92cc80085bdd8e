"""One record on several lines, as an editor or a mail program wrapped a copy of it.

The kernel writes a record in one line. So a line that is indented deeper than the one
before it, or comes where that one was full, and has no time or sign of its own, is that
record's rest if the record is plainly cut short and this is how the kernel would go on;
else it is a line of its own.

Source: copies in public reports.
"""

from __future__ import annotations

import re
from typing import Final

from dsup.facts.kernel import Record

_LINES_MAX: Final = 3
"""A record has some hundred characters, and such a line at least forty."""

_FULL: Final = 64
"""Mail has lines of 72 to 80 characters; one is full if the next word would go past
this."""

_MARGIN: Final = b" \t>"
"""What a copy has before a line: indentation, and the marks of a quotation."""

_CRASH_GOES_ON: Final = re.compile(
    r"(?:[re]?ip|nip|sp|addr)[: ]|error[: ][0-9a-f]{1,4}\b"
    r"|[0-9a-f]{8,16} (?:[re]?sp|error)[: ]|(?:in )?[^\s\[]{1,255}\[[0-9a-f]{2,16}[,+]"
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
        re.compile(r"\([^\n]{1,40}\),? (?:UID|total-vm)|total-vm:|anon-rss:|UID"),
    ),
    (
        re.compile(
            r"(?:memory cgroup )?out of memory:(?: kill(?:ed)?)?\s*\Z", re.IGNORECASE
        ),
        re.compile(r"(?:kill(?:ed)? )?process \d", re.IGNORECASE),
    ),
    (
        re.compile(
            r"(?:Memory failure: |MCE )0x[0-9a-f]{1,16}:"
            r"(?: Killing| Sending(?: SIGBUS(?: to)?)?)?\s*\Z"
        ),
        re.compile(r"(?:[A-Z][A-Za-z]{5,6} |to ){0,3}\S{1,60}:\d{1,10} "),
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
        re.compile(r"NVRM: Xid\s*\Z"),
        re.compile(r"\((?:PCI:)?[0-9a-f]{4,8}:", re.IGNORECASE),
    ),
    (
        re.compile(r"Task in(?:\s*\Z|\s+/(?![^\n]{0,4000} limit of /))"),
        re.compile(
            r"/|(?:killed )?(?:as )?(?:a )?result\b|(?:of )?(?:limit )?of(?: /|\s*\Z)"
        ),
    ),
    (
        re.compile(
            r"(?:NMI )?(?:watchdog: )?BUG: soft lockup(?: -(?: CPU#\d{1,6})?)?"
            r"(?![^\n]{0,60}\[)"
        ),
        re.compile(r"(?:- )?CPU#\d|stuck for \d|\d{1,6}s!|\[[^\n]{1,60}:\d{1,10}\]"),
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
        self._indentation = self._width = 0
        self._awaited: re.Pattern[str] | None = None
        self._lines = 0

    def begin(self, line: bytes, text: str) -> None:
        """Take in a line that is a record, and what is said in it."""
        self._text, self._lines = text, 0
        self._indentation, self._width = _indentation(line), len(line)
        self._awaited = _next_of(text)

    def rest(self, line: bytes) -> Record | None:
        """Return a line's text as the rest of the record; None if it is not."""
        awaited, self._awaited = self._awaited, None
        if awaited is None:
            return None
        text = line.strip(_MARGIN).decode(errors="backslashreplace")
        if not awaited.match(text) or not self._fits(line, text):
            return None
        whole = self._text.endswith(" ") or self._text.startswith("oom-kill:")
        text = text if whole else f" {text}"
        self._text += text
        self._lines, self._width = self._lines + 1, len(line)
        if self._lines < _LINES_MAX:
            self._awaited = _next_of(self._text)
        return Record(None, None, text, goes_on=True)

    def _fits(self, line: bytes, text: str) -> bool:
        """Return whether a line stands where the rest of the last one would."""
        deeper = _indentation(line) - self._indentation
        full = self._width + len(text.partition(" ")[0]) >= _FULL
        return deeper > 0 or (deeper == 0 and full)


def _next_of(text: str) -> re.Pattern[str] | None:
    """Return how a record goes on that is cut short; None if it is whole."""
    return next((rest for head, rest in _CUT_SHORT if head.match(text)), None)


def _indentation(line: bytes) -> int:
    return len(line) - len(line.lstrip(_MARGIN))
