"""``dsup kernel-log``: the faults that a kernel log tells of."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import click

if TYPE_CHECKING:
    from dsup.facts.kernel import KernelFault
    from dsup.facts.kernel_text import SavedLog

_EXAMPLES: Final = """\b
Examples:
  dsup kernel-log /var/log/kern.log     a file, in any form that dmesg, journalctl,
                                        syslog or a console writes
  dmesg -T | dsup kernel-log -          standard input
  dsup kernel-log --live --since 2h     this machine's own
  dsup kernel-log --live --json         for programs
"""
_FIELDS: Final = (
    "kind",
    "pid",
    "comm",
    "xid",
    "pci",
    "cgroup",
    "anon_rss_kb",
    "lib",
    "seq",
    "at_us",
    "stamp",
    "text",
)


@click.command(
    "kernel-log",
    short_help="Print the faults that a kernel log tells of.",
    epilog=_EXAMPLES,
)
@click.argument("file", required=False, default="")
@click.option("--live", is_flag=True, help="Read the log of this machine's kernel.")
@click.option(
    "--since",
    default="",
    metavar="TIME",
    help="Leave out what is older than that (90, 10m, 2h, 3d) before the log's end.",
)
@click.option("--json", "machine", is_flag=True, help="Print JSON for programs.")
def kernel_log(file: str, *, live: bool, since: str, machine: bool) -> None:
    """Print the faults in FILE, one a line, oldest first, and what they mean.

    FILE is a kernel log in any form; - is standard input.
    """
    from dsup.cli import kernel_log_files as files

    files.check(file, live=live)
    limit_us = files.span_us(since)
    log = files.live() if live else files.saved(file)
    faults = [fault for fault in log.faults() if _recent(fault, log, limit_us)]
    remarks = log.remarks()
    if machine:
        click.echo(_json(faults))
        for remark in remarks:
            click.echo(f"dsup: {remark}", err=True)
        return
    for line in (*_text(faults, log), *remarks):
        click.echo(line, color=True)  # they have none where none are wanted


def _recent(fault: KernelFault, log: SavedLog, limit_us: int | None) -> bool:
    """Return whether a fault is to be shown; one that tells no time is."""
    if limit_us is None or fault.at_us is None or log.latest_us is None:
        return True
    return fault.at_us >= log.latest_us - limit_us


def _json(faults: list[KernelFault]) -> str:
    import json

    from dsup.facts.kernel_wall import wall_iso

    rows = [
        {name: getattr(fault, name) for name in _FIELDS}
        | {"wall": wall_iso(fault.stamp)}
        for fault in faults
    ]
    return json.dumps(rows, indent=1)


def _text(faults: list[KernelFault], log: SavedLog) -> Iterator[str]:
    import shutil

    from dsup.core.appearance import appearance
    from dsup.report.kernel_lines import fault_lines

    shows = sys.stdout is not None and sys.stdout.isatty()
    colour = appearance(os.environ, terminal=shows).colour
    # What is piped may be searched, and is not cut.
    columns = shutil.get_terminal_size().columns if shows else None
    yield from fault_lines(faults, colour=colour, columns=columns)
    if not faults:
        lines = "1 line" if log.lines == 1 else f"{log.lines} lines"
        yield f"no fault in {lines}"
