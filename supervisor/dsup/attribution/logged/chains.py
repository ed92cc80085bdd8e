"""What a rank met first, where it was ended by an exception of its cleaning up.

Symptom: ``During handling of the above exception, another exception occurred``: a rank
fails, and what it does then (a barrier, a group that is destroyed) meets peers that are
gone as well. The first link is the rank's own.
Source: CPython's ``__context__`` and ``__cause__``, as tracebacks print them.
"""

from __future__ import annotations

from typing import Final

from dsup.facts.errors import communication
from dsup.facts.logs.said import Error

_FLOW: Final = frozenset(
    {
        "AttributeError",
        "CancelledError",
        "Empty",
        "GeneratorExit",
        "KeyboardInterrupt",
        "StopIteration",
        "SystemExit",
        "TimeoutError",
    }
)
"""What programs raise to find their way: no end of anything."""


def unchained(error: Error) -> Error:
    """Return the earliest own exception of a chain that ends in a lost peer's words."""
    if not error.causes or not communication(error.type, error.text):
        return error
    for at in range(len(error.causes) - 1, -1, -1):
        kind, text = error.causes[at]
        flow = kind.rpartition(".")[2] in _FLOW
        if kind and not flow and not communication(kind, text):
            rest = error.causes[at + 1 :]
            # The place that is known is that of the last link.
            return error._replace(type=kind, text=text, causes=rest, frame="")
    return error
