"""What agent and probe send each other: a datagram a frame, ``KIND ID BODY``.

The agent reads the head of a frame only; its body is JSON for whoever judges.
"""

from __future__ import annotations

from typing import Final, NamedTuple

FRAME_MAX_BYTES: Final = 65_536

CARDS: Final = b"C"
"""Which GPUs there are."""

BOARDS: Final = b"B"
"""The same as the driver lists it without NVML, which may never start."""

FAILED: Final = b"F"
"""NVML cannot be asked; the body is a code of ``facts.nvml``, and the probe ends."""

READING: Final = b"R"
"""What one GPU answered."""

DONE: Final = b"D"
"""A request has been carried out."""

EVENT: Final = b"E"
"""Something happened, unasked."""

HEALTH: Final = b"health"
REST: Final = b"rest"
FITNESS: Final = b"fitness"
LOAD: Final = b"load"
"""Requests: what may end a job, what may explain more, what a new job meets, and what
the GPUs do now."""


class Frame(NamedTuple):
    """A frame.

    Attributes:
        kind: one of the above, or a request.
        ident: number of the request it belongs to; 0 for none.
        body: JSON, or nothing.
    """

    kind: bytes
    ident: int
    body: bytes = b""


def encode(frame: Frame) -> bytes:
    """Return a frame as a datagram."""
    return b"%b %d %b" % frame


def decode(raw: bytes) -> Frame | None:
    """Return what a datagram says; None if it makes no sense."""
    kind, _, rest = raw.partition(b" ")
    ident, _, body = rest.partition(b" ")
    return Frame(kind, int(ident), body) if ident.isdigit() else None
