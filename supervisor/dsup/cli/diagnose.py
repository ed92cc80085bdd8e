"""``dsup diagnose``: the verdicts of a run, and what became of it."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

import click

if TYPE_CHECKING:
    from dsup.cli.diagnosis import Diagnosis

_EXAMPLES: Final = """\b
Examples:
  dsup diagnose                 the newest run
  dsup diagnose 8a1f0c          a run by a part of its directory's name, or by its id
  dsup diagnose /shared/logs    the newest run in a directory, or a run directory
  dsup diagnose --json          for programs
"""


@click.command(
    short_help="Say which rank of a run failed first, and why.",
    epilog=_EXAMPLES,
)
@click.argument("run", required=False, default="")
@click.option(
    "--all", "everything", is_flag=True, help="Print every failed attempt in full."
)
@click.option("--json", "machine", is_flag=True, help="Print JSON for programs.")
def diagnose(run: str, *, everything: bool, machine: bool) -> None:
    """Print the verdict of RUN: its last failed attempt, and what became of it.

    RUN is a directory, a run id, or a part of a run directory's name. Without it, the
    newest run that is kept where dsup launch keeps runs.
    """
    from dsup.cli.diagnosis import diagnosis
    from dsup.cli.find_run import find_run

    found = diagnosis(find_run(run, os.environ))
    if machine:
        click.echo(_json(found))
        return
    lines = _text(found, os.environ, everything=everything)
    click.echo("\n".join(lines), color=True)  # they have none where none are wanted


def _json(found: Diagnosis) -> str:
    import json

    verdicts = [case.fields() for case in found.cases]
    return json.dumps({"schema": "dsup.diagnosis/1", "verdicts": verdicts}, indent=1)


def _text(
    found: Diagnosis, environment: Mapping[str, str], *, everything: bool
) -> Iterator[str]:
    from dsup.core.appearance import appearance, speaks_unicode
    from dsup.edges.scribe.console import OFF, PALETTE
    from dsup.report.columns import Columns
    from dsup.report.panel import one_line, toned

    encodes = sys.stdout.encoding.lower().replace("-", "") == "utf8"
    columns = Columns(speaks_unicode(environment) and encodes)
    colour = appearance(environment, terminal=sys.stdout.isatty()).colour
    yield columns.legible(_head(found))
    for case in found.cases:
        if not everything and case is not found.cases[-1]:
            yield columns.legible(one_line(case.verdict, case.next_text))
            continue
        for line, tone in toned(case.verdict, case.setting(columns.unicode)):
            loud = colour and tone != "plain"
            yield f"{PALETTE[tone].decode()}{line}{OFF.decode()}" if loud else line
    for remark in found.remarks:
        yield columns.legible(remark)
    if not found.cases or found.cases[-1].next_text != found.outcome:
        yield columns.legible(found.outcome)


def _head(found: Diagnosis) -> str:
    stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(found.started_s))
    many = "rank" if found.world_size == 1 else "ranks"
    size = f"{found.world_size} {many} on " if found.world_size else ""
    return f"{found.name}: {size}{found.node}, started {stamp} UTC"
