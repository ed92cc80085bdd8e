"""What a note, or an error.json, says: untrusted JSON as a typed fact. Pure."""

from __future__ import annotations

from typing import Final

from dsup.core.printable import printable
from dsup.facts.fields import NAME_MAX_CHARS, VERSION, loads, number, word
from dsup.facts.raised import Raised

TEXT_MAX_CHARS: Final = 2000
PATH_MAX_CHARS: Final = 1024
CAUSES_MAX: Final = 4
_MAX_NS: Final = 2**63
_ELLIPSIS: Final = " ... "
_STACK_MAX_CHARS: Final = 16_384
_ENDINGS: Final = ("error", "exception", "timeout", "interrupt", "exit")
"""How names of exceptions end: a message of the user's own may begin with any word."""


def decode_note(rank: int, raw: bytes) -> Raised | None:
    """Return what a note says; None if it is none of ours.

    Args:
        rank: whose socket it came from.
        raw: the datagram.
    """
    fields = loads(raw)
    kind = word(fields.get("type"), NAME_MAX_CHARS)
    told = fields.get("kind") == "raised" and fields.get("v") == VERSION
    if not told or not kind:
        return None
    at_ns = number(fields.get("at_ns"), _MAX_NS)
    return Raised(
        rank=rank,
        type=kind,
        text=_text(fields.get("text")),
        caught_s=at_ns / 1e9 if at_ns else None,
        source="note",
        pid=number(fields.get("pid"), 2**31),
        thread=word(fields.get("thread"), NAME_MAX_CHARS),
        file=word(fields.get("file"), PATH_MAX_CHARS),
        line=number(fields.get("line"), 2**31),
        function=word(fields.get("function"), NAME_MAX_CHARS),
        causes=_causes(fields.get("causes")),
        handed=fields.get("handed") == 1,
    )


def decode_error_file(rank: int, raw: bytes) -> Raised | None:
    """Return what torch's error.json says, in both its forms; None if it is none.

    Its time stamp has whole seconds and is the worker's to choose: it is not used.

    Source: torch/distributed/elastic/multiprocessing/errors/error_handler.py.
    """
    message = loads(raw).get("message")
    stack = ""
    recorded = isinstance(message, dict)
    if isinstance(message, dict):
        extra = message.get("extraInfo")
        found = extra.get("py_callstack") if isinstance(extra, dict) else ""
        stack = found if isinstance(found, str) else ""
        message = message.get("message")
    if not isinstance(message, str) or not message.strip():
        return None
    kind, _, text = message.partition(":")
    named = _is_type(kind) and (recorded or kind.lower().endswith(_ENDINGS))
    file, line, function = _place(stack)
    return Raised(
        rank=rank,
        type=kind if named else "Exception",
        text=_text(text.strip() if named else message),
        caught_s=None,
        source="error_file",
        file=file,
        line=line,
        function=function,
    )


def _is_type(word: str) -> bool:
    parts = word.split(".") if len(word) <= NAME_MAX_CHARS and word.isascii() else [""]
    return all(part.isidentifier() for part in parts)


def _place(stack: str) -> tuple[str, int | None, str]:
    """Return file, line and function of the innermost frame of the user's code."""
    innermost: tuple[str, int | None, str] = ("", None, "")
    found = innermost
    for row in stack[-_STACK_MAX_CHARS:].splitlines():
        file, quote, rest = row.strip().removeprefix('File "').partition('", line ')
        number, _, function = rest.partition(", in ")
        if not quote or not (number.isascii() and number.isdigit()):
            continue
        line = int(number[:9])
        innermost = word(file, PATH_MAX_CHARS), line, word(function, NAME_MAX_CHARS)
        if "/site-packages/" not in file and "/lib/python3" not in file:
            found = innermost
    return found if found[0] else innermost


def _text(value: object) -> str:
    """Return a printable text that keeps its lines, without its middle if it is long.

    What came out of a helper's traceback has its message in the last line.
    """
    if not isinstance(value, str):
        return ""
    if len(value) > TEXT_MAX_CHARS:
        value = value[:TEXT_MAX_CHARS] + value[-TEXT_MAX_CHARS:]
    lines = (printable(line.expandtabs(4)) for line in value.splitlines())
    text = "\n".join(lines)
    if len(text) <= TEXT_MAX_CHARS:
        return text
    half = (TEXT_MAX_CHARS - len(_ELLIPSIS)) // 2
    return text[:half] + _ELLIPSIS + text[-half:]


def _causes(value: object) -> tuple[tuple[str, str], ...]:
    if not isinstance(value, list):
        return ()
    pairs = [pair for pair in value[:CAUSES_MAX] if isinstance(pair, list)]
    return tuple(
        (word(pair[0], NAME_MAX_CHARS), _text(pair[1]))
        for pair in pairs
        if len(pair) == 2  # noqa: PLR2004 (type and text)
    )
