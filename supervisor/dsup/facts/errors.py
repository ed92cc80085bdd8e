"""What an exception says about its cause: a peer's end, or something of its own.

Substrings of a capped, lower-cased text are looked for and nothing is parsed, so that
hostile text costs no time. The agent imports this module: it needs next to nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from dsup.facts.error_words import (
    COMMUNICATION,
    DEEP,
    DISTRIBUTED_TYPES,
    LOCAL,
    MISSING,
    OUTER,
    OWN,
    PEER_TYPES,
    PLAIN_TYPES,
    RELAYED,
    Row,
)

LOOKED_AT_CHARS: Final = 8192


def communication(type_name: str, text: str) -> str:
    """Return what kind of communication error this is, in a few words.

    Args:
        type_name: qualified name of the exception's type; empty for a line of a log.
        text: its text, or that line.

    Returns:
        Such as ``connection closed by peer``; empty where it is no such error, or
        where its text tells of a reason in the rank itself.
    """
    if type_name in RELAYED:
        return RELAYED[type_name]
    lowered = _lowered(text)
    if any(word in lowered for word in LOCAL):
        return ""
    last = _last(type_name)
    peer = type_name in PEER_TYPES or last in DISTRIBUTED_TYPES
    if not peer and type_name not in PLAIN_TYPES:
        return ""
    for how, words in COMMUNICATION:
        if any(word in lowered for word in words):
            # Only the store's own sockets raise this type.
            return "store lost" if _by_store(last, how) else how
    return "connection failed" if peer else ""


def is_communication(type_name: str, text: str) -> bool:
    """Return whether a rank raises this when another one's end reaches it."""
    return communication(type_name, text) != ""


def is_timeout(how: str) -> bool:
    """Return whether a kind of communication error means that nobody came."""
    return "timed out" in how or "barrier" in how


def cause_of(type_name: str, text: str, causes: Iterable[tuple[str, str]] = ()) -> str:
    """Return the cause that an exception stands for.

    Args:
        type_name: qualified name of its type.
        text: its text.
        causes: ``(type, text)`` of those it was raised from or during, nearest first.

    Returns:
        A key of ``exits.CAUSES``; ``python_exception`` where nothing else is told.
    """
    lowered = _lowered(text)
    own = OWN.get(type_name) or _row(DEEP, type_name, lowered)
    own = own or _row(OUTER, type_name, lowered) or _of_missing(type_name, lowered)
    if own:
        return own
    for inner_type, inner_text in causes:
        inner = _row(DEEP, inner_type, _lowered(inner_text))
        if inner:
            return inner
    return "python_exception"


def worker_pids(text: str) -> tuple[int, ...]:
    """Return the pids of the DataLoader workers whose end a text tells of.

    Example: ``DataLoader worker (pid(s) 41, 42) exited unexpectedly``.
    """
    _, found, rest = text[:LOOKED_AT_CHARS].partition("DataLoader worker (pid")
    listed = rest.removeprefix("(s)").partition(")")[0] if found else ""
    words = (word.strip() for word in listed.split(","))
    return tuple(int(w) for w in words if w.isascii() and w.isdigit() and len(w) < 10)  # noqa: PLR2004 (no pid is longer)


def _lowered(text: str) -> str:
    return text[:LOOKED_AT_CHARS].lower()


def _last(type_name: str) -> str:
    return type_name.rpartition(".")[2]


def _by_store(last: str, how: str) -> bool:
    return last == "DistNetworkError" and how == "connection closed by peer"


def _row(rows: tuple[Row, ...], type_name: str, lowered: str) -> str:
    last = _last(type_name)
    for cause, types, words in rows:
        if last in types or any(word in lowered for word in words):
            return cause
    return ""


def _of_missing(type_name: str, lowered: str) -> str:
    if type_name != "FileNotFoundError":
        return ""
    for cause, ends in MISSING.items():
        if any(end in lowered for end in ends):
            return cause
    return ""
