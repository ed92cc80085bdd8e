"""``dsup stop``: ask a run's agent to end it, and wait until it has."""

from __future__ import annotations

import os
from typing import Final

import click

_EXAMPLES: Final = """\b
Examples:
  dsup stop                     the one run that goes on here
  dsup stop 8a1f0c              a run by a part of its name, or by its id
  dsup stop --now               kill what is left; nothing is saved
"""


@click.command(
    short_help="Stop a run, with a last checkpoint where that can be.",
    epilog=_EXAMPLES,
)
@click.argument("run", required=False, metavar="[RUN|DIR]")
@click.option("--now", is_flag=True, help="Kill the ranks at once.")
@click.option("--no-wait", is_flag=True, help="Do not wait for the end of the run.")
def stop(run: str | None, *, now: bool, no_wait: bool) -> None:
    """Stop a run for good, and wait until it is over.

    RUN is a run id or a part of a run directory's name, DIR a run directory; without
    it, the one run that goes on where dsup launch keeps runs: of several, none is
    stopped. It must be running on this node. Ranks whose loops ask for it leave
    together at the next step, with a last checkpoint; others get SIGTERM, and SIGKILL
    after --shutdown-timeout. The run ends with exit code 130, and is not restarted.
    Asked again, it is no impatience: only --now is.
    """
    from dsup.cli.run_files import told_as
    from dsup.cli.stop_choice import run_to_stop
    from dsup.cli.stopping import ask_to_stop, wait

    with told_as("stop"):
        path = run_to_stop(run, os.environ)
        ask_to_stop(path, os.environ, now=now)
    if not no_wait:
        click.echo(wait(path))
