"""Text that is safe to put on a terminal or into a line. Pure."""

from __future__ import annotations


def printable(text: str) -> str:
    """Return a text that moves no cursor and begins no line of its own.

    Names of processes, checkpoints and programs are their makers' choice.
    """
    if text.isprintable():
        return text
    shown = (c if c.isprintable() else ascii(c)[1:-1] for c in text)
    return "".join(shown)
