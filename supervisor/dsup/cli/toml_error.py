"""What is wrong with a TOML file that cannot be read, in a user's words. Pure.

The parser tells a place and a reason of its grammar's. What the line holds there tells
most often which slip it was.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from dsup.core.printable import printable
from dsup.report.masked import masked_text

_LINE_MAX_CHARS: Final = 80
_WORD_MAX_CHARS: Final = 40
_PLACE: Final = re.compile(
    r"(.*) \(at (?:line (\d{1,9}), column (\d{1,9})|end of document)\)", re.DOTALL
)
_KEY: Final = re.compile(r"""[ \t]*(?:\[{1,2}[ \t]*)?(["']?)([\w.-]{1,80})\1""")
_ASSIGNED: Final = re.compile(
    r"""[ \t]*(["']?)([\w.-]{1,80})\1[ \t]*=[ \t]*([^\n]*)""", re.ASCII
)
_NEXT_KEY: Final = re.compile(r"[A-Za-z_][\w-]{0,80}[ \t]*=")
_NUMBER: Final = re.compile(r"[+-]?(?:0|[1-9]\d*)(?:\.\d+)?[ \t]")
_SMALL: Final = {
    **dict.fromkeys(("true", "yes", "on"), "true"),
    **dict.fromkeys(("false", "no", "off"), "false"),
}
_NOTHING: Final = frozenset(("none", "null", "nil"))
_CURLY: Final = "“”„‘’‚«»"  # noqa: RUF001 (it is they that are looked for)
_IN_CODES: Final = frozenset(("Unescaped '\\' in a string", "Invalid hex value"))
_CUT_STRINGS: Final = (
    "Illegal character '\\n'",
    "Found invalid character '\\n'",
    "Unterminated",
    'Expected "',
)

_OPENINGS: Final = {
    "Unclosed array": "[",
    "Unterminated string": "\"'",
    'Expected "\'"': "'",
    "Expected \"'''\"": "'",
}
"""With what that begins of which the parser missed the end."""


class _Line(NamedTuple):
    """The line in which the parser stopped.

    Attributes:
        number: from 1.
        column: where in it, from 1.
        key: what is set there; empty where none is.
        value: what stands behind the key's ``=``.
        rest: what stands from that column on.
    """

    number: int
    column: int
    text: str
    key: str
    value: str
    rest: str


def told(path: str, text: str, error: Exception) -> str:
    """Return where a file is no TOML, and what is wrong there, in one line.

    Args:
        path: of the file, as it was given.
        text: its content.
        error: the parser's.
    """
    found = _PLACE.fullmatch(str(error))
    if isinstance(error, RecursionError) or not found:
        why = "too many brackets" if isinstance(error, RecursionError) else str(error)
        return f"the file {path} cannot be read: it is no TOML: {printable(why)[:200]}"
    lines = text.split("\n")
    if found[2]:
        line = _line(lines, int(found[2]), int(found[3]))
    else:
        last = next((n for n in range(len(lines), 0, -1) if lines[n - 1].strip()), 1)
        line = _line(lines, last, len(lines[last - 1].rstrip()) + 1)
    line = _where_it_begins(found[1], lines, line)
    named = f"{line.key}: " if line.key else ""
    what = printable(masked_text(_what(found[1], lines, line)))
    return f"{path}:{line.number}:{line.column}: {named}{what}, in: {_shown(line)}"


def not_utf8(path: str, raw: bytes, error: UnicodeDecodeError) -> str:
    """Return that a file is not in UTF-8, and from where on."""
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        return f"{path}: it is UTF-16 text (save it as UTF-8)"
    before = raw[: error.start]
    line, column = before.count(b"\n") + 1, len(before) - before.rfind(b"\n")
    byte = f"byte {raw[error.start]:#04x}"
    return f"{path}:{line}:{column}: {byte} is not UTF-8 (save it as UTF-8)"


def _line(lines: list[str], number: int, column: int) -> _Line:
    text = lines[number - 1] if number <= len(lines) else ""
    found = _ASSIGNED.match(text)
    key = found[2] if found else ""
    value = found[3].rstrip() if found else ""
    return _Line(number, column, text, key, value, text[column - 1 :].strip())


def _where_it_begins(reason: str, lines: list[str], line: _Line) -> _Line:
    """Return the line where something begins that has no end, else the same."""
    opening = _OPENINGS.get(reason, "")
    if not opening or (line.rest and not _ASSIGNED.match(line.rest)):
        return line
    for number in range(line.number, 0, -1):
        before = _line(lines, number, 1)
        if before.value.startswith(tuple(opening)) and _is_open(before.value):
            column = before.text.index(before.value[0], before.text.index("=")) + 1
            return before._replace(column=column, rest="")
    return line


def _is_open(value: str) -> bool:
    """Return whether what begins with a bracket or a quote has no end there."""
    return "]" not in value if value[0] == "[" else value.count(value[0]) % 2 == 1


def _what(reason: str, lines: list[str], line: _Line) -> str:
    """Return what is wrong in a line, and how it is written instead."""
    hints = (
        _of_sets(reason, lines, line),
        _of_strings(reason, line),
        _of_lists(reason, line),
        _of_keys(reason, line),
        _of_values(reason, line),
    )
    said = next((hint for told in hints for hint in told), "")
    return said or f"it is no TOML: {reason[:1].lower()}{reason[1:200]}"


def _of_sets(reason: str, lines: list[str], line: _Line) -> Iterator[str]:
    if reason == "Cannot overwrite a value":
        first = next(
            n for n in range(1, line.number + 1) if _line(lines, n, 1).key == line.key
        )
        twice = line.key and first < line.number
        other = f"line {first} sets it, too" if twice else "it is set twice"
        yield f"{other} (keep one of them)"
    if reason.startswith("Cannot declare"):
        yield "the section is there twice (keys stand without sections here)"


def _of_strings(reason: str, line: _Line) -> Iterator[str]:
    if reason in _IN_CODES:
        plain = line.value.strip("\"'")
        how = f": {line.key} = '{plain}'" if line.key and _is_short(plain) else ""
        yield f"a backslash between double quotes begins a code (use single ones{how})"
    elif reason.startswith(_CUT_STRINGS):
        yield "the text has no closing quote"
    elif reason.startswith(("Illegal character", "Found invalid character")):
        yield "a control character stands there (delete it)"


def _of_lists(reason: str, line: _Line) -> Iterator[str]:
    if reason.startswith("Unclosed inline table"):
        yield "no option takes a table in braces"
    elif reason == "Unclosed array" and line.rest[:1] in {"}", ")"}:
        yield f"the list ends with {line.rest[0]!r} (end it with a ']')"
    elif reason == "Unclosed array" and line.rest:
        yield f"a ',' is missing before {_word(line.rest)} (or the closing ']')"
    elif reason == "Unclosed array":
        yield "the list has no closing ']'"


def _of_keys(reason: str, line: _Line) -> Iterator[str]:
    if reason.startswith("Expected ']'"):
        yield "the section has no closing ']' (keys stand without sections here)"
    if reason == "Invalid statement":
        yield "a key is missing before it (a line is: key = value)"
    if not reason.startswith("Expected '=' after a key"):
        return
    found = _KEY.match(line.text)
    key = found[2] if found else ""
    if line.rest.startswith(":"):
        yield f"TOML has no ':' (write {key} = …)"
    elif key == "export":
        yield "a line does not begin with 'export' (write key = value)"
    elif "=" in line.rest:
        yield "a key is one word of letters, digits, '-' and '_' (as in log-dir = …)"
    else:
        yield f"a '=' is missing (write {key} = {line.rest or '…'})"


def _of_values(reason: str, line: _Line) -> Iterator[str]:
    if reason == "Invalid value":
        if not line.rest or line.rest.startswith("#"):
            yield "it has no value (give one, or leave the line out)"
        else:
            yield _of_word(line.rest, line)
    if reason.startswith("Expected newline or end"):
        if line.rest in {",", ";"}:
            yield f"a line does not end with {line.rest!r} (leave it out)"
        elif _NEXT_KEY.match(line.rest):
            yield "a second key stands there (one to a line)"
        elif line.value[:1] in {'"', "'", "["} or _NUMBER.match(line.value):
            yield f"{_word(line.rest)} stands behind the value (leave it out)"
        elif line.value:
            yield _of_word(line.value, line)


def _of_word(value: str, line: _Line) -> str:
    """Return how a bare word is written that TOML does not know."""
    word = re.split(r"[\s,\]}#]", value, maxsplit=1)[0]
    small = word.lower()
    if small in _SMALL:
        return f"{_word(word)} is no value of TOML's (write {_SMALL[small]})"
    if small in _NOTHING:
        return "TOML has no word for nothing (leave the line out)"
    if value[0] in _CURLY:
        return 'those are no quotes for TOML (write plain ones: "…")'
    if re.fullmatch(r"[+-]?0\d{1,20}", word):
        return f"a number does not begin with 0 (write {int(word)})"
    whole = line.value.partition("#")[0].strip()
    if line.key and value == line.value and _is_short(whole) and '"' not in whole:
        return f"a text stands in quotes (write {line.key} = {_quoted(whole)})"
    return f"a text stands in quotes (write {_quoted(word[:_WORD_MAX_CHARS])})"


def _quoted(text: str) -> str:
    return f"'{text}'" if "\\" in text else f'"{text}"'


def _is_short(text: str) -> bool:
    return 0 < len(text) <= _WORD_MAX_CHARS


def _word(text: str) -> str:
    return repr(text[:_WORD_MAX_CHARS].split(maxsplit=1)[0])


def _shown(line: _Line) -> str:
    """Return a line for people: the part around the place, of a long one."""
    text = printable(masked_text(line.text.strip()))
    if len(text) <= _LINE_MAX_CHARS:
        return text
    at = max(0, min(line.column, len(text)) - _LINE_MAX_CHARS // 2)
    part = text[at : at + _LINE_MAX_CHARS]
    after = "…" if at + _LINE_MAX_CHARS < len(text) else ""
    return f"{'…' if at else ''}{part}{after}"
