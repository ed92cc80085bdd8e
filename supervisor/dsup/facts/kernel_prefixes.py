"""What programs put before a kernel record when they print it, and taking it off.

Only what is known is taken off, from the left; what remains is the kernel's text or it
matches nothing. A line that another program than the kernel signed is not the kernel's,
whatever it quotes. Every pattern is bounded, so that any line costs little.

Source: util-linux dmesg(1), systemd journalctl(1), rsyslog and syslog-ng templates,
node-problem-detector, and public reports.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

_STEPS_MAX: Final = 12
_CLOCK = r"\d{1,2}:\d\d(?::\d\d(?:[.,]\d{1,9})?)?"
_LEVELS = r"(?:TRACE|DEBUG|INFO|NOTICE|WARN|WARNING|ERR|ERROR|CRIT|CRITICAL|FATAL)\b"
"""What a program logs at; neither a zone of time nor a host."""

_ZONE = rf"(?: ?(?:Z|UTC|(?!{_LEVELS})[A-Z]{{3,4}}|[+-]\d\d:?\d\d)\b)?"
_ISO = r"\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d(?P<fraction>[.,]\d{1,9})?" + _ZONE
_NUMERIC = (
    r"(?:(?:\d{1,4}(?P<part>[-/.])\d{1,2}(?:(?P=part)\d{2,4})?"
    r"|\d{1,2}(?P<of>[-/])[A-Z][a-z]{2}(?P=of)\d{4})"
    rf"[T :,-]{{1,2}}{_CLOCK}"
    rf"|\d{{8}}[T ,-]?(?:\d{{6}}(?:[.,]\d{{1,9}})?|{_CLOCK}))(?: [AP]M\b)?{_ZONE}"
    r"|\d{10}(?:\.\d{1,9})?"
)
"""A date without blanks in another order or closer together, or seconds of Unix."""

_NAME = r"[^\s\[\]]{0,200}[^\s\[\]:]"
_WORD = r"(?:[^\W\d_]{1,12}[.,]{0,2}|\d{1,4}(?:[.,月日年]|st|nd|rd|th)?[^\W\d_]{0,2})"

_HEADED = r"(?:[A-Z][a-z]{2} [ \d]\d |\d{4}-\d\d-\d\dT)\d\d:\d\d:\d\d\S{0,20} "
"""How syslog begins a line."""

_PID = r"\[[\w./-]{1,16}\]"
"""What a tag has in brackets: a number; of the kernel, ``n/a`` or ``-`` as well."""

_STRUCTURED = (
    r"(?:\[[A-Za-z][^\s=\]\"]{0,64}"
    r"(?: [^\s=\]\"]{1,64}=\"(?:[^\"\\]|\\.){0,200}\"){1,20}\])"
)
"""An element of data in a line of RFC 5424; an empty one would look like a caller."""

_LEVEL = r"(?:emerg|alert|crit|err|error|warn|warning|notice|info|debug)\b"
_KERNELS = r"\b(?i:kernel|kern|dmesg|kmsg|printk|serial|console)\b"
"""What a program that forwards the kernel's log calls it in brackets."""

COLOURS: Final = re.compile(
    r"(?:\x1b|\^\[|#033|\\x1b|\\033|\\e)\[[0-9;?]{0,20}[A-Za-z]|\x1b\([A-Z0-9]"
)
_LOST_COLOURS: Final = re.compile(r"\[(?:0|[0-9]{1,2}(?:;[0-9]{1,3}){0,4})?m")
"""The escape character itself is lost in a copy from a terminal."""

_REPEATED: Final = re.compile(
    r"message repeated \d{1,9} times: \[ (?P<text>.*?)\]?\s*$"
)


class Bare(NamedTuple):
    """A line without what was put before it.

    Attributes:
        text: what remains.
        at_us: time since boot that it showed, microseconds.
        stamp: the time that it showed otherwise.
    """

    text: str
    at_us: int | None = None
    stamp: str = ""


class _Form(NamedTuple):
    """A prefix.

    Attributes:
        kind: ``mark`` means nothing, nor does ``host`` before a date. After a
            ``date``, and after an ``iso`` one that dmesg did not write, another program
            may have signed. ``ring`` (the kernel's stamp) and ``sign`` tell that the
            kernel did; ``priority`` and ``level`` may tell that it did not. A ``clock``
            has no date, a ``tool`` names the kernel's log in brackets, and a ``bare
            level`` has no facility.
    """

    kind: str
    pattern: re.Pattern[str]


_FORMS: Final = (
    _Form("mark", re.compile(r"(?:[>|│┃`]\s{0,8}|(?:[-*•]|//)\s{1,4}(?=[\[<]))")),
    _Form("lost", _LOST_COLOURS),
    _Form(
        "ring",
        re.compile(
            r"\[\s{0,12}(?P<s>\d{1,10})\.(?P<us>\d{6}|\d{3}|)(?:@\d{1,4})?"
            r"(?:\s{1,4}<\s{0,8}\d{1,9}\.\d{6}>)?\s{0,2}\] ?"
        ),
    ),
    # The first bracket is easily lost in a copy.
    _Form("ring", re.compile(r"(?P<s>\d{1,10})\.(?P<us>\d{6})\] ")),
    _Form("ring", re.compile(r"\[\s{0,8}[+<]\s{0,8}\d{1,9}\.\d{6}>?\] ?")),
    _Form("caller", re.compile(r"\[\s{0,8}[TC]\d{1,10}\] ?")),
    _Form(
        "ring",
        re.compile(
            rf"\[(?P<stamp>[\w .,:+\-]{{0,40}}(?<![\d:.]){_CLOCK}(?![\d:])"
            r"[\w .,:+\-]{0,24})(?:<\s{0,8}\d{1,9}\.\d{6}>)?\]:? ?"
        ),
    ),
    _Form("priority", re.compile(r"<(?P<prio>\d{1,4})>(?:\d )?")),
    _Form(
        "iso",
        re.compile(rf"(?P<stamp>(?:[^\W\d_]{{1,8}}\.? )?{_ISO}):?(?:\s{{1,4}}|$)"),
    ),
    _Form(
        "date",
        re.compile(
            rf"(?P<stamp>(?:{_WORD}\s{{1,3}}){{1,4}}{_CLOCK}(?:\s\d{{4}}\b)?"
            rf"(?:\s[AP]M\b)?)(?:\s(?!{_LEVELS})[A-Z]{{3,4}}(?=\s))?\s{{1,4}}"
        ),
    ),
    _Form("date", re.compile(rf"(?P<stamp>{_NUMERIC}):?\s{{1,4}}")),
    _Form("clock", re.compile(r"(?P<stamp>\d\d:\d\d:\d\d(?:[.,]\d{1,9})?)\s{1,4}")),
    _Form(
        "tool",
        re.compile(rf"\[(?=[^\]]{{0,40}}{_KERNELS})[\w .:-]{{1,40}}\]\s{{1,4}}(?=\[)"),
    ),
    _Form(
        "bare level",
        # What programs write before a colon is "error", and dmesg "err".
        re.compile(rf"(?:(?!error){_LEVEL}:\s{{1,8}}|{_LEVEL}\s{{1,8}}(?=\[))"),
    ),
    _Form(
        "level",
        re.compile(
            r"(?P<facility>kern|user|mail|daemon|auth|syslog|lpr|news|uucp|cron"
            r"|authpriv|local\d)"
            rf"\s{{0,4}}:\s{{0,8}}{_LEVEL}\s{{0,4}}:\s{{0,2}}"
        ),
    ),
    _Form("mark", re.compile(r"(?:In|Wa|Er|Db)\(\d\d\)\+? \S{1,40} - (?:Guest: )?")),
    _Form(
        "mark",
        re.compile(
            r"[\w./+-]{0,200}(?:log|messages|dmesg)[\w./-]{0,80}"
            r"[:-](?:\d{1,9}[:-])?\s?(?=\S)"
        ),
    ),
    _Form("mark", re.compile(r"\[(?:…|\.{3})\] {1,4}|[\w.-]{1,64}:(?=\[\w{3} \w{3} )")),
    # A relay, or a shell on many hosts, names the host that it has the line from.
    _Form("mark", re.compile(rf"[\w.-]{{1,64}} (?={_HEADED})")),
    _Form("host", re.compile(rf"[\w.-]{{1,64}}:\s{{0,2}}(?={_HEADED})")),
    _Form("mark", re.compile(r"\d{1,9}[:-](?=\[|<|[A-Z][a-z]{2} )")),
    _Form(
        "mark",
        re.compile(
            r"[\w.-]{1,64}(?::|\s{1,8}\|)\s{1,4}(?=\[[\s\d+]|<\d|\[\w{3} |kern\b)"
        ),
    ),
    # RFC 5424: perhaps no time, then host, program, its pid, a kind, and data.
    _Form(
        "sign",
        re.compile(
            r"(?:- )?[^\s\[\]]{1,200} kernel (?:-|n/a|\d{1,10}) \S{1,32} "
            rf"(?:(?:-|{_STRUCTURED}{{1,20}})(?: |$))?\ufeff?"
        ),
    ),
    _Form(
        "sign",
        re.compile(
            rf"(?!{_LEVELS})(?:{_NAME}\s{{1,3}}){{0,2}}"
            rf"(?:kernel|vmunix)(?:{_PID})?:"
            r"(?:\s{1,4}(?=\[\s{0,12}\d{1,10}\.\d{6}\])|\s?)"
        ),
    ),
)
_AFTER_SIGN: Final = frozenset({"ring", "caller", "priority", "lost", "sign"})
_RING_AHEAD: Final = re.compile(
    r"[^\[\]\n]{0,60}?(?:<\d>)?(?=\[\s{0,12}\d{1,10}\.\d{6}\] )"
)
"""A console's or a host's name, before the kernel's own stamp."""

_COMMON: Final = re.compile(
    r"(?:(?P<stamp>[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d"
    r"|(?P<iso>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[^\s,]{0,20})) "
    rf"(?!{_LEVELS})[\w.-]{{1,64}} "
    r"(?:(?P<kernel>kernel: )|(?!kernel)[\w./@()-]{1,64}(?:\[\d{1,10}\]|(?(iso)(?!))): "
    r"(?P<other>)))?(?P<ring>\[\s{0,12}(?P<s>\d{1,10})\.(?P<us>\d{6})\] )?(?=[A-Za-z])"
)
"""Most lines of most logs; a tenth of the time that the forms below take."""

_INDENTED: Final = re.compile(
    r"in \S|(?:\[<[0-9a-f]{1,16}>\] )?(?:\? )?[\w.]{1,80}\+0x"
)
"""What the kernel itself indents: the file of a crash, and functions of a stack."""

_MORE: Final = re.compile(r"[\x1b#\\^]|kernel: |message repeated ")
"""What asks for a second look."""

_SIGNED_BY_ANOTHER: Final = re.compile(rf"{_NAME} [\w./@()-]{{1,64}}{_PID}: ")


def bare(line: str) -> Bare | None:
    """Return a line without its prefixes; None if it is not the kernel's.

    Args:
        line: without its end; colours may be left in it.
    """
    if found := _COMMON.match(line):
        if found["other"] is not None:
            return None
        text = line[found.end() :]
        if (found["kernel"] or found["ring"]) and not _MORE.search(text):
            at_us = _us(found["s"], found["us"]) if found["s"] else None
            return Bare(text, at_us, found["stamp"] or found["iso"] or "")
    return _slowly(line)


def _slowly(line: str) -> Bare | None:
    reading = _Line(COLOURS.sub("", line).removeprefix("\ufeff"))
    for _ in range(_STEPS_MAX):
        if not reading.step():
            break
    return reading.result()


class _Line:
    """A line while its prefixes come off."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._indentation = len(text) - len(text.lstrip(" \t"))
        self._at_us: int | None = None
        self._stamp = ""
        self._dated = ""
        self._signed = False
        self._foreign = False

    def step(self) -> bool:
        """Take one prefix off; return whether there was one."""
        for kind, pattern in _FORMS:
            if self._signed and kind not in _AFTER_SIGN:
                continue
            if self._dated and kind == "host":
                continue  # there a program would stand
            # A copy may be indented; after the kernel's stamp the indentation counts.
            start = 0 if self._signed else self._indentation
            found = pattern.match(self._text, start)
            if found and found.end() > start:
                self._text = self._text[found.end() :]
                self._indentation = 0
                self._note(kind, found.groupdict())
                return not self._foreign
        return self._skip_name()

    def result(self) -> Bare | None:
        """Return what remains."""
        if self._foreign or self._unsigned():
            return None
        repeated = _REPEATED.match(self._text)
        text = repeated["text"] if repeated else self._text
        if not (self._signed or self._dated):
            text = _dedented(text)
        text = text.replace("#012", "\n").replace("#011", "\t")
        return Bare(text, self._at_us, self._stamp)

    def _note(self, kind: str, fields: dict[str, str | None]) -> None:
        """Take in what a prefix says."""
        if fields.get("s"):
            self._at_us = _us(fields["s"], fields["us"])
        self._stamp = fields.get("stamp") or self._stamp
        if kind == "date" or (kind == "iso" and "," not in (fields["fraction"] or "")):
            self._dated = kind
        if kind in {"ring", "sign"}:
            self._signed = True
        if kind == "priority":
            self._foreign = int(fields["prio"] or 0) >> 3 != 0
        if kind == "level":
            self._foreign = fields["facility"] != "kern"

    def _skip_name(self) -> bool:
        """Take off what stands before the kernel's own stamp."""
        found = None if self._signed else _RING_AHEAD.match(self._text)
        if not found or not found.end():
            return False
        self._text, self._indentation = self._text[found.end() :], 0
        return True

    def _unsigned(self) -> bool:
        """Return whether the line is of a log in which the kernel signs its own."""
        if self._signed or not self._dated:
            return False
        return self._dated == "date" or bool(_SIGNED_BY_ANOTHER.match(self._text))


def _us(seconds: str | None, rest: str | None) -> int:
    return int(seconds or 0) * 1_000_000 + int((rest or "").ljust(6, "0"))


def _dedented(text: str) -> str:
    """Return a line without a copy's indentation; what the kernel indents stays so."""
    bare_text = text.lstrip(" \t")
    if bare_text == text:
        return text
    return f" {bare_text}" if _INDENTED.match(bare_text) else bare_text
