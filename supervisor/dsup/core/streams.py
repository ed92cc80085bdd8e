"""From ``--redirects``, ``--tee`` and their like to where each stream goes. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from dsup.core.output import Console, RankOutput, Route
from dsup.core.printable import printable

STDOUT: Final = 1
STDERR: Final = 2
PREFIX: Final = "[${role_name}${local_rank}]:"
"""torchrun's own, which has no blank at its end."""

SIZE_MIN: Final = 4096

_PAIR: Final = re.compile(r"([0-9]{1,4}):([0-3])")
_SIZE: Final = re.compile(r"([0-9]{1,18})([KMGT]?)(?:I?B)?")
_SHIFTS: Final = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}
_NUL: Final = "\0"


class Streams(NamedTuple):
    """Some streams of some ranks: 1 is stdout, 2 is stderr, 3 is both.

    Attributes:
        everywhere: those of every rank that is not named.
        by_rank: those of each local rank that is.
    """

    everywhere: int = 0
    by_rank: Mapping[int, int] = {}

    def of(self, local_rank: int) -> int:
        """Return those of a rank."""
        return self.by_rank.get(local_rank, self.everywhere)

    @property
    def none(self) -> bool:
        """Whether no stream of any rank is among them."""
        return not self.everywhere and not any(self.by_rank.values())


class Wishes(NamedTuple):
    """What was asked for of the ranks' output.

    Attributes:
        redirects: streams kept off the console.
        tee: streams shown behind a prefix; None where nobody asked.
        shown: local ranks that the console shows; None for all.
        filters: what a line of stdout, and one of stderr, is copied for.
        prefix: template of a rank's prefix.
        files: output is kept in files.
    """

    redirects: Streams = Streams()
    tee: Streams | None = None
    shown: frozenset[int] | None = None
    filters: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    prefix: str = PREFIX
    files: bool = True


class Names(NamedTuple):
    """What a prefix may say.

    Attributes:
        role: of all ranks.
        host: name of the node.
    """

    role: str
    host: str


def routes(wishes: Wishes, names: Names, ranks: int) -> tuple[RankOutput, ...]:
    """Return where the output of each local rank goes."""
    return tuple(
        RankOutput(
            _route(wishes, names, rank, STDOUT), _route(wishes, names, rank, STDERR)
        )
        for rank in range(ranks)
    )


def parse_streams(text: str) -> Streams:
    """Return what ``3`` or ``0:1,12:3`` stands for.

    Raises:
        ValueError: if it stands for nothing; says what would.
    """
    if re.fullmatch("[0-3]", text):
        return Streams(int(text))
    pairs = [_PAIR.fullmatch(word) for word in text.split(",")]
    if not all(pairs):
        raise ValueError(
            f"{text!r} is neither 0 (none), 1 (stdout), 2 (stderr) or 3 (both) nor a "
            "list of LOCAL_RANK:0|1|2|3, as in 0:1,12:3"
        )
    return Streams(0, {int(pair[1]): int(pair[2]) for pair in pairs if pair})


def parse_ranks(text: str) -> frozenset[int] | None:
    """Return the ranks of ``0,3``; None for all where the text is empty.

    Raises:
        ValueError: if it is no such list.
    """
    if not text.strip():
        return None
    words = [word.strip() for word in text.split(",")]
    if not all(re.fullmatch("[0-9]{1,4}", word) for word in words):
        raise ValueError(f"{text!r} is not a list of local ranks, as in 0,3")
    return frozenset(map(int, words))


def parse_filters(text: str) -> tuple[str, ...]:
    """Return the substrings of ``loss,Error``; a doubled comma stands for one."""
    words = text.replace(",,", _NUL).split(",")
    return tuple(word.replace(_NUL, ",") for word in words if word)


def parse_size(text: str) -> int | None:
    """Return how many bytes ``1G`` or ``65536`` is; None for ``none``.

    Raises:
        ValueError: if it is no size, or too small to be one of a file.
    """
    if text == "none":
        return None
    found = _SIZE.fullmatch(text.strip().upper())
    size = int(found[1]) << _SHIFTS[found[2]] if found else 0
    if size < SIZE_MIN:
        raise ValueError(f"{text!r} is not a size from 4K on (64M, 1G, 2T), or none")
    return size


def _route(wishes: Wishes, names: Names, rank: int, stream: int) -> Route:
    shown = wishes.shown is None or rank in wishes.shown
    teed = bool(wishes.tee and wishes.tee.of(rank) & stream)
    filtered = shown and (teed or wishes.tee is None)
    return Route(
        file=wishes.files,
        console=_console(wishes, rank, stream, shown=shown),
        prefix=_prefix(wishes, names, rank) if shown and teed else "",
        filters=wishes.filters[stream - 1] if filtered else (),
    )


def _console(wishes: Wishes, rank: int, stream: int, *, shown: bool) -> Console:
    if not shown:
        return "none"
    if wishes.tee and wishes.tee.of(rank) & stream:
        return "prefixed"
    return "none" if wishes.redirects.of(rank) & stream else "raw"


def _prefix(wishes: Wishes, names: Names, rank: int) -> str:
    from string import Template

    prefix = Template(wishes.prefix).safe_substitute(
        role_name=names.role, local_rank=rank, rank=rank, hostname=names.host
    )
    # It stands before every line, so it must neither end one nor move a cursor.
    return printable(prefix)
