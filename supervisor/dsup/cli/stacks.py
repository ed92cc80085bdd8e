"""``dsup stacks``: where each rank of a run is at this moment."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

import click

if TYPE_CHECKING:
    from dsup.cli.living import Living
    from dsup.facts.stacks import Process

SCHEMA: Final = "dsup.stacks/1"

_EXAMPLES: Final = """\b
Examples:
  dsup stacks                   every rank of the newest run, and its helpers
  dsup stacks 8a1f0c --rank 3   one rank of a run by a part of its name, or by its id
  dsup stacks --native          frames of C code, too
"""


@click.command(
    short_help="Show where each rank of a live run is now.",
    epilog=_EXAMPLES,
)
@click.argument("run", required=False, metavar="[RUN|DIR]")
@click.option("--rank", type=click.IntRange(min=0), metavar="N", help="Only this one.")
@click.option(
    "--native",
    is_flag=True,
    help="Frames of C code, too: stops each process for some milliseconds.",
)
@click.option("--json", "machine", is_flag=True, help="Print JSON for programs.")
def stacks(run: str | None, *, rank: int | None, native: bool, machine: bool) -> None:
    """Print the Python stacks of a run's ranks and their helpers, innermost call first.

    RUN is a run id or a part of a run directory's name, DIR a run directory; without
    it, the newest run that is kept where dsup launch keeps runs. It must be running on
    this node. Nothing is stopped, and no signal is sent to the training, unless py-spy
    is missing, or may not look: then ranks write their stacks themselves.
    """
    import time

    from dsup.cli.living import find
    from dsup.cli.run_files import told_as
    from dsup.cli.stack_readers import taken
    from dsup.facts.stack_text import header, thread_lines

    with told_as("show stacks of"):
        living = find(run, os.environ)
    found = list(taken(living.of(rank), os.environ, native=native))
    if machine:
        click.echo(_json(living, found))
        return
    wall_s = time.clock_gettime(time.CLOCK_REALTIME)
    blocks = ("\n".join((header(one, wall_s), *thread_lines(one))) for one in found)
    click.echo("\n\n".join(blocks))


def _json(living: Living, found: Iterable[Process]) -> str:
    import json

    answer = {
        "schema": SCHEMA,
        "run": os.path.basename(living.path),
        "attempt": living.attempt,
        "processes": [_fields(one) for one in found],
    }
    return json.dumps(answer, indent=1)


def _fields(one: Process) -> Mapping[str, object]:
    return {**one._asdict(), "threads": list(_threads(one))}


def _threads(one: Process) -> Iterator[Mapping[str, object]]:
    for thread in one.threads:
        frames = [frame._asdict() for frame in thread.frames]
        yield {**thread._asdict(), "frames": frames}
