"""Where a rank's output goes: files, the console, or the terminal itself. Pure."""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

Console: TypeAlias = Literal["none", "raw", "prefixed"]

Tone: TypeAlias = Literal["plain", "warning", "failure"]
"""How grave a line of dsup's own is; it decides its colour."""


class Route(NamedTuple):
    """Where one stream of one rank goes.

    Attributes:
        file: it is kept in the run directory.
        console: ``none``, whole lines as they are (``raw``), or whole lines behind the
            rank's prefix (``prefixed``).
        prefix: put before each line on the console; empty unless ``prefixed``.
        filters: a line that contains one of these is also copied to the attempt's
            ``filtered_stdout.log`` or ``filtered_stderr.log``.
    """

    file: bool
    console: Console
    prefix: str = ""
    filters: tuple[str, ...] = ()


class RankOutput(NamedTuple):
    """The two streams of a rank."""

    out: Route
    err: Route


class Output(NamedTuple):
    """What becomes of the output of all ranks of a node.

    Attributes:
        ranks: one for each local rank, in order.
        inherit: ranks get dsup's own stdin, stdout and stderr; nothing is kept.
        timestamps: lines on the console and in files begin with the time.
        max_bytes: a log file is rotated when it has grown past this; None for never.
        colour: dsup's own lines and prefixes are coloured.
        status: one status line is kept at the bottom of the terminal.
        unicode: the console shows more than ASCII.
        keep_runs: older run directories of this node beyond so many are removed; None
            keeps all.
    """

    ranks: tuple[RankOutput, ...]
    inherit: bool = False
    timestamps: bool = False
    max_bytes: int | None = None
    colour: bool = False
    status: bool = False
    unicode: bool = True
    keep_runs: int | None = None
