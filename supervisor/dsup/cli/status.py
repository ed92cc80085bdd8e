"""``dsup status``: how a run stands, asked of its agent, or read from its directory."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Final

import click

_EXAMPLES: Final = """\b
Examples:
  dsup status                   the newest run
  dsup status llm7b --watch     a run by a part of its name, or its id; q quits
  dsup status --json            for programs
"""
_VERB: Final = "show the status of"


@click.command(
    short_help="Show how a run stands now.",
    epilog=_EXAMPLES,
)
@click.argument("run", required=False, metavar="[RUN|DIR]")
@click.option("-w", "--watch", is_flag=True, help="Show it anew every two seconds.")
@click.option("--json", "machine", is_flag=True, help="Print JSON for programs.")
def status(run: str | None, *, watch: bool, machine: bool) -> int:
    """Show how a run stands: its ranks, their steps, heartbeats and memory.

    RUN is a run id or a part of a run directory's name, DIR a run directory; without
    it, the newest run that is kept where dsup launch keeps runs. A run that goes on is
    asked through its control socket; of one that is over, or that cannot be asked from
    here, the run directory tells.

    A rank with something to be said of it is marked; past 24 ranks, and where the
    terminal is low, the others share a row with the worst of each value. A question
    mark is unknown, a dash was not measured. With --watch, q quits; where the output
    is no terminal, it ends with the run, and --json is one document a line.
    """
    import json

    from dsup.cli.run_files import told_as

    if watch:
        from dsup.cli.run_status import run_path
        from dsup.cli.watch import watched

        with told_as(_VERB):
            return watched(run_path(run, os.environ), os.environ, machine=machine)
    with told_as(_VERB):
        told = document(run, os.environ)
    if machine:
        click.echo(json.dumps(told, indent=1))
    else:
        from dsup.cli.watch import printed

        printed(told, os.environ)
    return 0


def document(run: str | None, environment: Mapping[str, str]) -> Mapping[str, Any]:
    """Return the status document of the run that is meant, live where that may be.

    Args:
        run: a word of the command line; None for the newest run.
        environment: names the places where runs are kept.

    Raises:
        SpecError: there is no such run, or more than one.
        UnreadableRunError: it holds no journal that can be read.
        NoAnswerError: its agent refuses, or does not answer.
    """
    from dsup.cli.run_status import run_path, status_of

    return status_of(run_path(run, environment))
