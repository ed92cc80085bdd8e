"""``dsup runs``: the runs that are kept, and which of them go on."""

from __future__ import annotations

import os
from typing import Final

import click

SHOWN: Final = 20

_EXAMPLES: Final = """\b
Examples:
  dsup runs                     the newest ones, and all that go on
  dsup runs --all --json        all that are kept, for programs
"""


@click.command(
    short_help="List the runs that are kept, the newest first.",
    epilog=_EXAMPLES,
)
@click.option("--all", "everything", is_flag=True, help="All, not the newest alone.")
@click.option("--json", "machine", is_flag=True, help="Print JSON for programs.")
def runs(*, everything: bool, machine: bool) -> None:
    """List the runs that are kept where dsup launch keeps runs, the newest first.

    Each with its node, what became of it, its attempts, the last step, when it began
    (UTC), how long it lasted, and the verdict on its last failure.
    """
    from dsup.cli.run_list import as_json, listed, table

    most = None if everything else SHOWN
    rows, hidden = listed(os.environ, most)
    if machine:
        click.echo(as_json(rows))
        return
    if not rows:
        from dsup.cli.find_run import kept_in

        click.echo(f"dsup: no run is kept in {kept_in(os.environ)}", err=True)
    width = os.get_terminal_size(1).columns if os.isatty(1) else None
    for line in table(rows, width):
        click.echo(line)
    if hidden:
        click.echo(
            f"dsup: {hidden} older ones are not shown (--all shows them)", err=True
        )
