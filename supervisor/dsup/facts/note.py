"""What a worker's note or its error.json says: untrusted JSON as a typed fact."""

from __future__ import annotations

import json
from typing import Any, Final

from dsup.facts.raised import Raised

TEXT_MAX_CHARS: Final = 2000
NAME_MAX_CHARS: Final = 200
PATH_MAX_CHARS: Final = 1024
CAUSES_MAX: Final = 4
_MAX_NS: Final = 2**63


def decode_note(rank: int, raw: bytes) -> Raised | None:
    """Return what a note says; None if it is none of ours.

    Args:
        rank: whose socket it came from.
        raw: the datagram.
    """
    fields = _loads(raw)
    if fields.get("kind") != "raised" or not isinstance(fields.get("type"), str):
        return None
    at_ns = _number(fields.get("at_ns"), _MAX_NS)
    return Raised(
        rank=rank,
        type=_word(fields["type"], NAME_MAX_CHARS),
        text=_word(fields.get("text"), TEXT_MAX_CHARS),
        caught_s=at_ns / 1e9 if at_ns else None,
        source="note",
        pid=_number(fields.get("pid"), 2**31),
        thread=_word(fields.get("thread"), NAME_MAX_CHARS),
        file=_word(fields.get("file"), PATH_MAX_CHARS),
        line=_number(fields.get("line"), 2**31),
        function=_word(fields.get("function"), NAME_MAX_CHARS),
        causes=_causes(fields.get("causes")),
    )


def decode_error_file(rank: int, raw: bytes) -> Raised | None:
    """Return what torch's error.json says, in both its forms; None if it is none.

    Its time stamp has whole seconds and is the worker's to choose: it is not used.

    Source: torch/distributed/elastic/multiprocessing/errors/error_handler.py.
    """
    message = _loads(raw).get("message")
    stack = ""
    if isinstance(message, dict):
        extra = message.get("extraInfo")
        found = extra.get("py_callstack") if isinstance(extra, dict) else ""
        stack = found if isinstance(found, str) else ""
        message = message.get("message")
    if not isinstance(message, str) or not message.strip():
        return None
    kind, colon, text = message.partition(": ")
    named = colon and kind.isascii() and kind.replace(".", "").isidentifier()
    file, line, function = _place(stack)
    return Raised(
        rank=rank,
        type=kind[:NAME_MAX_CHARS] if named else "Exception",
        text=(text if named else message)[:TEXT_MAX_CHARS],
        caught_s=None,
        source="error_file",
        file=file,
        line=line,
        function=function,
    )


def _place(stack: str) -> tuple[str, int | None, str]:
    """Return file, line and function of the innermost frame of the user's code."""
    found: tuple[str, int | None, str] = ("", None, "")
    for row in stack[-16_384:].splitlines():
        file, quote, rest = row.strip().removeprefix('File "').partition('", line ')
        number, _, function = rest.partition(", in ")
        user = "/site-packages/" not in file and "/lib/python" not in file
        if quote and number.isascii() and number.isdigit() and user:
            found = (file[:PATH_MAX_CHARS], int(number[:9]), function[:NAME_MAX_CHARS])
    return found


def _loads(raw: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(raw)
    except (ValueError, RecursionError):
        return {}
    return fields if isinstance(fields, dict) else {}


def _word(value: object, limit: int) -> str:
    return value[:limit] if isinstance(value, str) else ""


def _number(value: object, limit: int) -> int | None:
    return value if type(value) is int and 0 <= value < limit else None


def _causes(value: object) -> tuple[tuple[str, str], ...]:
    if not isinstance(value, list):
        return ()
    pairs = [pair for pair in value[:CAUSES_MAX] if isinstance(pair, list)]
    return tuple(
        (_word(pair[0], NAME_MAX_CHARS), _word(pair[1], TEXT_MAX_CHARS))
        for pair in pairs
        if len(pair) == 2  # noqa: PLR2004 (type and text)
    )
