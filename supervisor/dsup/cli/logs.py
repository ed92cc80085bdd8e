"""``dsup logs``: what the ranks of a run wrote, in the order of time."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

import click

from dsup.cli.values import Parsed
from dsup.core import streams

if TYPE_CHECKING:
    from dsup.cli.log_choice import Wish

FOLLOWED_LINES: Final = 10
"""So many of the lines there are, are shown before those that come."""

_EXAMPLES: Final = """\b
Examples:
  dsup logs                         all that the ranks of the newest run wrote
  dsup logs -f                      the last lines, and those that come
  dsup logs llm7b --rank 5 -n 200   one rank of a run by a part of its name, or its id
  dsup logs --stderr --since 10m    what came in the last ten minutes on stderr
"""


@click.command(
    short_help="Show what the ranks of a run wrote.",
    epilog=_EXAMPLES,
)
@click.argument("run", required=False, metavar="[RUN|DIR]")
@click.option(
    "--rank",
    "ranks",
    type=Parsed("ranks", streams.parse_ranks),
    metavar="N[,M..]",
    help="Only these; of one alone, lines do not begin with its rank.",
)
@click.option("-f", "--follow", is_flag=True, help="Show what comes, until the end.")
@click.option(
    "-n",
    "--lines",
    "last",
    type=click.IntRange(min=0),
    metavar="LINES",
    help="Only the last ones.  [default: with -f 10, else all]",
)
@click.option("--stdout", "out", is_flag=True, help="Only what went to stdout.")
@click.option("--stderr", "err", is_flag=True, help="Only what went to stderr.")
@click.option(
    "--attempt", type=click.IntRange(min=0), metavar="N", help="Only this one."
)
@click.option(
    "--since",
    metavar="TIME",
    help="Only what came since: 90s, 10m, 2h, 1d, or a time (ISO 8601, else UTC).",
)
@click.option("--raw", is_flag=True, help="Pass bytes on as they are, into a pipe.")
def logs(  # noqa: PLR0913 (click's: an option each)
    run: str | None,
    *,
    ranks: frozenset[int] | None,
    follow: bool,
    last: int | None,
    out: bool,
    err: bool,
    attempt: int | None,
    since: str | None,
    raw: bool,
) -> int:
    """Show what the ranks of a run wrote, each line with its rank, in order of time.

    RUN is a run id or a part of a run directory's name, DIR a run directory; without
    it, the newest run that is kept where dsup launch keeps runs. It may go on or be
    over: the run directory is read, and no process asked. Lines are ordered by when
    dsup read them, to a tenth of a second. What could move a cursor is spelled out,
    and colours are shown on a terminal. With -f it goes on through restarts, and ends
    with the run.
    """
    from dsup.cli.log_choice import Wish
    from dsup.cli.run_files import told_as
    from dsup.cli.run_status import run_path

    if raw and os.isatty(1):
        raise click.UsageError(
            "cannot use --raw on a terminal, because what a rank wrote could change it "
            "(send the output into a file or a pipe)"
        )
    chosen = [
        stream
        for stream, asked in ((streams.STDOUT, out), (streams.STDERR, err))
        if asked or out == err
    ]
    with told_as("show logs of"):
        path = run_path(run, os.environ)
    wish = Wish(
        path=path,
        ranks=ranks,
        streams=tuple(chosen),
        attempt=attempt,
        last=FOLLOWED_LINES if follow and last is None and since is None else last,
        since_ns=None if since is None else _since_ns(since),
        follow=follow,
    )
    return _show(wish, raw=raw)


def _show(wish: Wish, *, raw: bool) -> int:
    import signal

    from dsup.cli.log_printer import Paper, Style
    from dsup.cli.log_show import Logs
    from dsup.core.appearance import appearance
    from dsup.core.exits import OK, stop_code

    _allow_many_files()
    looks = appearance(os.environ, terminal=os.isatty(1))
    named = wish.ranks is None or len(wish.ranks) != 1
    style = Style(named=named, raw=raw, colour=looks.colour)
    try:
        Logs(wish, Paper(1), style).show()
    except BrokenPipeError:
        return stop_code(signal.SIGPIPE)
    return OK


def _allow_many_files() -> None:
    """Have room for the logs of many ranks: each is two files and their indices."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _since_ns(word: str) -> int:
    """Return the time that is meant, CLOCK_REALTIME, nanoseconds.

    Raises:
        UsageError: none is.
    """
    import time
    from datetime import UTC, datetime

    from dsup.cli.values import duration

    try:
        return time.time_ns() - int(duration(word) * 1e9)
    except ValueError:
        pass  # a time, then
    try:
        at = datetime.fromisoformat(word)
        at = at if at.tzinfo else at.replace(tzinfo=UTC)
        return int(at.timestamp()) * 1_000_000_000 + at.microsecond * 1000
    except (ValueError, OverflowError):
        raise click.UsageError(
            f"cannot tell when {word!r} is, because it is neither a length (90s, "
            "10m, 2h, 1d) nor a time such as 2026-11-30T14:19:48"
        ) from None
