"""``dsup status`` as text: once, or again and again, on a terminal or into a pipe."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Mapping
from typing import Any, Final

import click

from dsup.cli.asker import Asker, is_final
from dsup.cli.run_status import status_of
from dsup.cli.screen import ENDING, Screen
from dsup.core.appearance import appearance, speaks_unicode
from dsup.core.exits import OK, stop_code
from dsup.core.output import Tone
from dsup.report.status_cells import lasting
from dsup.report.status_table import ROWS_MAX, Look, table

EVERY_S: Final = 2.0

SILENT_S: Final = 6.0
"""An agent that has not answered for so long is said to be silent."""

_PIPE_CELLS: Final = 120
_ALL: Final = 1 << 20
_COLOURS: Final[Mapping[Tone, str]] = {"warning": "\x1b[33m", "failure": "\x1b[1;31m"}
_OFF: Final = "\x1b[0m"
_QUIT: Final = frozenset(b"qQ\x03\x04")


def printed(document: Mapping[str, Any], environment: Mapping[str, str]) -> None:
    """Print a run's status once."""
    terminal = os.isatty(1)
    look = Look(cells=_PIPE_CELLS, ranks=_ALL, unicode=speaks_unicode(environment))
    if terminal:
        cells = os.get_terminal_size(1).columns or _PIPE_CELLS
        look = look._replace(cells=cells, ranks=ROWS_MAX)
    colour = appearance(environment, terminal=terminal).colour
    for line in _lines(document, look, colour=colour):
        click.echo(line, color=colour)


def watched(path: str, environment: Mapping[str, str], *, machine: bool) -> int:
    """Show a run's status again and again; return the exit code.

    Args:
        path: the run directory.
        environment: tells what the terminal can show.
        machine: as JSON, one document a line.
    """
    document = status_of(path)
    looks = appearance(environment, terminal=os.isatty(1))
    if machine or not looks.status:
        return _repeated(path, document, environment, machine=machine)
    asker = Asker(path, document, EVERY_S)
    with Screen(0, 1) as screen:
        asker.start(screen.wake)
        look = Look(unicode=speaks_unicode(environment))
        signum = _drawn(screen, asker, look, colour=looks.colour)
    return OK if signum in {0, signal.SIGINT} else stop_code(signum)


def _drawn(screen: Screen, asker: Asker, look: Look, *, colour: bool) -> int:
    """Draw until a key or a signal ends it; return the signal, 0 for none."""
    while True:
        cells, lines = screen.size
        hint = "q quits" if screen.reads else "Ctrl-C quits"
        silent_s = time.monotonic() - asker.answered_s
        if asker.trouble and silent_s >= SILENT_S:
            hint = f"no answer for {lasting(silent_s)}  {hint}"
        look = look._replace(cells=cells, lines=lines, hint=hint)
        screen.draw(_lines(asker.document, look, colour=colour))
        keys, signals = screen.wait(EVERY_S)
        ended = next(filter(ENDING.__contains__, signals), 0)
        if ended or _QUIT.intersection(keys):
            return ended


def _repeated(
    path: str,
    document: Mapping[str, Any],
    environment: Mapping[str, str],
    *,
    machine: bool,
) -> int:
    """Print a block or a line each two seconds until the run is over."""
    while True:
        if machine:
            click.echo(json.dumps(document))
        else:
            printed(document, environment)
        if is_final(document):
            return OK
        time.sleep(EVERY_S)
        document = status_of(path)
        if not machine:
            click.echo()


def _lines(document: Mapping[str, Any], look: Look, *, colour: bool) -> list[str]:
    return [
        f"{_COLOURS[tone]}{line}{_OFF}" if colour and tone in _COLOURS else line
        for line, tone in table(document, look)
    ]
