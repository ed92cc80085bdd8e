"""A physical line as what a terminal would have shown: statements, not yet parsed.

Colours and titles go, of a progress bar that was drawn again and again the last state
stays, a log line wrapped in JSON is unwrapped. All of it is linear in the line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Final

from dsup.core.printable import printable

LINE_MAX_CHARS: Final = 16_384
_HALF: Final = LINE_MAX_CHARS // 2
_JSON_MAX_BYTES: Final = 262_144
_STATES_MAX: Final = 64
"""So many states of one line are looked at: a bar that was never ended by a newline
may have millions."""

_UNESCAPED_LINES_MAX: Final = 2000
_BAR_MAX_BYTES: Final = 400

_ESCAPE: Final = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]{0,64}[ -/]{0,8}[@-~]"  # CSI: colours, cursor
    r"|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)"  # OSC and its like: titles, links
    r"|\x1b[ -/]{0,8}[0-~]"
)
_SPELT_ESCAPE: Final = re.compile(
    r"(?:\\x1b|\\u001b|\\033|\\e|#033|\^\[|␛)\[[0-9;?]{0,32}[A-Za-z]"
    r"|\[(?:\d{1,2}(?:;\d{1,3}){0,4})?m(?![\]\w])|\[(?:\d;)?\d\dm(?!\])"
)
"""Colours whose escape character a log collector wrote out (rsyslog ``#033``, ``less``
``^[``, JSON that was printed and not read) or left out."""

_BACKSPACES: Final = re.compile(rb"\x08+")
_BAR_NAME: Final = re.compile(rb"\s*([^\d%|]{0,40})")
_JSON_TEXT: Final = ("log", "message", "msg", "textPayload", "text", "MESSAGE", "line")
_JSON_TIME: Final = ("time", "timestamp", "@timestamp", "ts", "receiveTimestamp")
_JSON_RANK: Final = ("rank", "global_rank", "RANK", "process_rank")
_JSON_RAISED: Final = ("exc_info", "exception", "stack_trace", "traceback")
_RANKS: Final = 1_000_000
_CUT_JSON: Final = re.compile(r'\s{0,8}\{.{0,300}?"(?:log|message|msg)": ?"')
_SPELT: Final = {"n": "\n", "t": "    ", "r": "", '"': '"', "\\": "\\", "'": "'"}
_SPELT_CHAR: Final = re.compile(r"\\([ntr\"'\\])")


def statements(data: bytes) -> Iterator[str]:
    """Yield what a line says, each printable and without trailing blanks.

    Several where it was drawn again after a carriage return with something else, or
    where it is a JSON object around several lines.
    """
    for state in _states(data):
        text = _unwrapped(state)
        for line in text.split("\n", _UNESCAPED_LINES_MAX):
            yield _shown(line)


def _states(data: bytes) -> list[bytes]:
    """Return a line's states between carriage returns; of a bar the last one only."""
    # A log that was truncated under its writer has a hole of zeros.
    data = data.replace(b"\0", b"")
    if b"\x08" in data:
        data = _BACKSPACES.sub(b"\r", data)
    if b"\r" not in data:
        return [data]
    found: list[bytes] = []
    for state in data.rsplit(b"\r", 4096):
        if not state.strip():
            continue
        if found and _draws_again(found[-1], state):
            found.pop()
        found.append(state)
    return found[-_STATES_MAX:] or [b""]


def _draws_again(before: bytes, state: bytes) -> bool:
    """Return whether a state is a bar's next one: it begins alike but for numbers."""
    if b"%" not in before[:_BAR_MAX_BYTES]:
        return False
    first, second = _BAR_NAME.match(before), _BAR_NAME.match(state)
    return first is not None and second is not None and first[1] == second[1]


def _unwrapped(state: bytes) -> str:
    start = state.lstrip()[:1]
    if start == b"{" and len(state) <= _JSON_MAX_BYTES:
        found = _from_json(state)
        if found is not None:
            return found
    text = _capped(state).decode(errors="backslashreplace")
    if start == b"{" and (cut := _CUT_JSON.match(text)):
        return _spelt_out(text[cut.end() :])
    if "Traceback (most recent call last):\\n" in text:
        # A text that holds lines, quoted: the repr of a string, or JSON that was cut.
        return _spelt_out(text)
    return text


def _capped(state: bytes) -> bytes:
    if len(state) <= LINE_MAX_CHARS:
        return state
    return state[:_HALF] + " … ".encode() + state[-_HALF:]


def _from_json(state: bytes) -> str | None:
    """Return the text of a log line that is a JSON object, its time before it."""
    try:
        found = json.loads(state)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    text = _first(found, _JSON_TEXT)
    if text is None:
        return None
    stamp = _first(found, _JSON_TIME) or ""
    rank = next((_rank(found[key]) for key in _JSON_RANK if key in found), "")
    text = text.rstrip("\n")
    if raised := _first(found, _JSON_RAISED):
        text = f"{text}\n{raised}"
    if "\\n" in text and "\n" not in text:
        text = _spelt_out(text)
    if not stamp and not rank:
        return text
    before = f"{stamp} {rank}".lstrip() if stamp else rank
    return "\n".join(f"{before}{line}" for line in text.split("\n"))


def _rank(value: object) -> str:
    """Return a rank that a JSON object tells, as torch marks a line with it."""
    known = isinstance(value, int) and not isinstance(value, bool)
    return f"[rank{value}]: " if known and 0 <= int(str(value)) < _RANKS else ""


def _first(found: dict[str, object], keys: tuple[str, ...]) -> str | None:
    values = (found.get(key) for key in keys)
    return next((value for value in values if isinstance(value, str)), None)


def _spelt_out(text: str) -> str:
    return _SPELT_CHAR.sub(lambda found: _SPELT[found[1]], text)


def _shown(text: str) -> str:
    if len(text) > LINE_MAX_CHARS:
        text = f"{text[:_HALF]} … {text[-_HALF:]}"
    if not text.isprintable():
        text = printable(_ESCAPE.sub("", text).replace("\t", "    "))
    if "[" in text:
        text = _SPELT_ESCAPE.sub("", text)
    return text.rstrip()
