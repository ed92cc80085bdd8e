"""Which logs of a run are meant: found, or refused with a reason."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from typing import Final, NamedTuple

from dsup.cli.log_stream import LogStream, Source
from dsup.cli.run_files import run_file
from dsup.core.errors import SpecError
from dsup.core.streams import STDERR, STDOUT
from dsup.report.sentences import spans
from dsup_runtime import contract

_ATTEMPTS_MAX: Final = 1000


class Wish(NamedTuple):
    """What is to be shown.

    Attributes:
        path: the run directory.
        ranks: these; None for all.
        streams: 1 for stdout, 2 for stderr.
        attempt: this one; None for all.
        last: so many lines; None for all.
        since_ns: what was read at this time or later, CLOCK_REALTIME; None for all.
        follow: go on until the run has ended.
    """

    path: str
    ranks: frozenset[int] | None = None
    streams: tuple[int, ...] = (STDOUT, STDERR)
    attempt: int | None = None
    last: int | None = None
    since_ns: int | None = None
    follow: bool = False

    @property
    def name(self) -> str:
        """The name of the run."""
        return os.path.basename(self.path)


def attempts(wish: Wish) -> list[int]:
    """Return the attempts that are meant, in order.

    Raises:
        SpecError: the one that is meant is not there.
    """
    found = list(_attempts(wish.path))
    if wish.attempt is None:
        return found
    if wish.attempt not in found and not (wish.follow and wish.attempt == len(found)):
        last = f"the last one is {found[-1]}" if found else "it has none yet"
        raise SpecError(
            f"cannot show attempt {wish.attempt} of {wish.name}, because {last}"
        )
    return [number for number in found if number == wish.attempt]


def sources(wish: Wish, attempt: int) -> Iterator[Source]:
    """Yield the streams that are meant of one attempt, whether they have logs or not.

    Raises:
        SpecError: a rank that is meant is not there.
    """
    found = ranks(wish.path, attempt)
    strange = sorted((wish.ranks or frozenset()) - set(found))
    if strange and found:
        raise SpecError(
            f"cannot show rank {strange[0]} of {wish.name}, because its ranks are "
            f"{spans(found)}"
        )
    for rank in found:
        if wish.ranks is None or rank in wish.ranks:
            yield from (Source(attempt, rank, stream) for stream in wish.streams)


def streams(wish: Wish, attempt: int) -> Iterator[LogStream]:
    """Yield the streams that are meant of one attempt, opened.

    Raises:
        SpecError: a rank that is meant is not there.
        UnreadableRunError: a log cannot be read.
    """
    for source in sources(wish, attempt):
        yield LogStream(wish.path, source)


def ranks(path: str, attempt: int) -> list[int]:
    """Return the ranks of an attempt that have a directory."""
    names: list[str] = []
    with suppress(OSError):
        names = os.listdir(contract.attempt_dir(path, attempt))
    return sorted(int(name) for name in names if name.isascii() and name.isdigit())


def any_logs(wish: Wish, chosen: list[int]) -> bool:
    """Return whether there is any log of what is meant."""
    return any(
        os.path.lexists(os.path.join(wish.path, source.name))
        for attempt in chosen
        for source in sources(wish, attempt)
    )


def none_kept(wish: Wish) -> str:
    """Return why a run keeps no logs, as far as its options tell; empty if it may."""
    match run_file(wish.path).get("options"):
        case {"log-dir": {"value": "/dev/null"}}:
            return "it was started with --log-dir /dev/null"
        case {"stdio": {"value": "inherit"}}:
            return "it was started with --stdio inherit"
        case _:
            return ""


def no_logs(wish: Wish) -> SpecError:
    """Return the refusal of a run that has no logs."""
    why = none_kept(wish) or (
        "its ranks write to dsup's own streams (--stdio pipe keeps logs of one rank on "
        "a terminal, too)"
    )
    return SpecError(
        f"cannot show logs of {wish.name}, because it keeps none: {why}"
        if ranks(wish.path, 0)
        else f"cannot show logs of {wish.name}, because no rank of it has been started"
    )


def _attempts(path: str) -> Iterator[int]:
    for number in range(_ATTEMPTS_MAX):
        if not ranks(path, number):
            return
        yield number
