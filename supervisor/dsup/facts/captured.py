"""What a capture has found, and how much of it is kept. Pure."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Final, NamedTuple

from dsup.facts.stacks import Taken, encode_process, fitting

TEXTS_MAX_BYTES: Final = 4 << 20
FACTS_MAX_BYTES: Final = 6 << 20
TRACES_MAX_BYTES: Final = 6 << 20
CAPTURE_MAX_BYTES: Final = TEXTS_MAX_BYTES + FACTS_MAX_BYTES + TRACES_MAX_BYTES
"""What a capture may hold; each kind has a place of its own, shared by the ranks."""

_CUT: Final = b"...\n"


class Found(NamedTuple):
    """What a capture has shown.

    Attributes:
        ranks: who did not come where the others wait; empty where that is a guess.
        op: the collective that they wait in.
        place: where the first of ``ranks`` is.
        facts: where in the file the records of ``encode_process`` are: start, length.
        texts: where the text of each rank is: rank, start, length.
        traces: where what ``flight_recorder.encode`` has made is: start, length.
    """

    ranks: tuple[int, ...] = ()
    op: str = ""
    place: str = ""
    facts: tuple[int, int] = (0, 0)
    texts: tuple[tuple[int, int, int], ...] = ()
    traces: tuple[int, int] = (0, 0)


def decode(answer: bytes) -> Found:
    """Return what an aide has answered; nothing where it gave no answer."""
    try:
        fields = json.loads(answer)
    except ValueError:
        return Found()
    texts = tuple((int(r), int(start), int(n)) for r, start, n in fields["texts"])
    start, length = fields["facts"]
    ranks = tuple(map(int, fields["ranks"]))
    told = ranks, fields["op"], fields["place"]
    return Found(*told, (start, length), texts, tuple(fields.get("traces", (0, 0))))


def cut_text(text: bytes, most: int) -> bytes:
    """Return at most so many bytes of a text, cut at the end of a line."""
    if len(text) <= most:
        return text
    return text[: text.rfind(b"\n", 0, most - len(_CUT)) + 1] + _CUT


def records(own: Collection[Taken], helpers: Collection[Taken]) -> bytes:
    """Return the records of ranks, and of as many of their helpers as there is room."""
    share = FACTS_MAX_BYTES // (2 * max(len(own), 1))
    found = [encode_process(fitting(one, share)) for one in own]
    left = FACTS_MAX_BYTES - sum(map(len, found))
    for one in helpers:
        record = encode_process(fitting(one, share))
        left -= len(record)
        if left < 0:
            break
        found.append(record)
    return b"".join(found)
