"""Options that say where output goes, and how dsup itself speaks."""

from __future__ import annotations

from typing import Final

import click

from dsup.cli.option import Section, option
from dsup.cli.values import Parsed
from dsup.core import streams

_STREAMS: Final = "0|1|2|3|RANK:N,..."

LOGS: Final = Section(
    "Logs",
    (
        option(
            "--log-dir",
            "DSUP_RUNS_DIR PET_LOG_DIR",
            metavar="DIR",
            shown="$STATE_DIRECTORY, ~/.local/state/dsup/runs",
            help="Where run directories are made. /dev/null: keep no rank logs.",
        ),
        option(
            "--keep-runs",
            "DSUP_KEEP_RUNS",
            type=click.IntRange(min=0),
            metavar="N",
            default=50,
            help="Run directories of this node that are kept; 0 keeps all.",
        ),
        option(
            "--log-max-size",
            "DSUP_LOG_MAX_SIZE",
            type=Parsed("size", streams.parse_size),
            metavar="SIZE|none",
            default="1G",
            help="A log that has grown past this begins again, and the old part is "
            "kept once.",
        ),
        option(
            "--log-timestamps",
            "DSUP_LOG_TIMESTAMPS",
            is_flag=True,
            help="Begin each line with the time.",
        ),
        option(
            "--stdio",
            "DSUP_STDIO",
            type=click.Choice(["auto", "inherit", "pipe"]),
            default="auto",
            help="inherit: ranks get dsup's own streams, for a debugger, and no logs. "
            "auto: that for one rank on a terminal, and with -r 0 -t 0.",
        ),
    ),
)

CONSOLE: Final = Section(
    "Console",
    (
        option(
            "-r --redirects redirects",
            "DSUP_REDIRECTS PET_REDIRECTS",
            type=Parsed("streams", streams.parse_streams),
            metavar=_STREAMS,
            default="0",
            help="Keep these off the console: 1 stdout, 2 stderr, 3 both. Logs have "
            "everything anyway.",
        ),
        option(
            "-t --tee tee",
            "DSUP_TEE PET_TEE",
            type=Parsed("streams", streams.parse_streams),
            metavar=_STREAMS,
            default="0",
            help="Show these on the console behind the rank's prefix.",
        ),
        option(
            "--local-ranks-filter",
            "DSUP_LOCAL_RANKS_FILTER PET_LOCAL_RANKS_FILTER",
            type=Parsed("ranks", streams.parse_ranks),
            metavar="RANK,...",
            default="",
            help="Show only these ranks on the console.",
        ),
        option(
            "--log-line-prefix-template",
            "DSUP_LOG_LINE_PREFIX_TEMPLATE PET_LOG_LINE_PREFIX_TEMPLATE "
            "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE",
            metavar="TEXT",
            default=streams.PREFIX,
            help="The prefix of --tee; ${rank} and ${hostname} are filled in too.",
        ),
        option(
            "--duplicate-stdout-filters",
            "DSUP_DUPLICATE_STDOUT_FILTERS PET_DUPLICATE_STDOUT_FILTERS",
            type=Parsed("texts", streams.parse_filters),
            metavar="TEXT,...",
            default="",
            help="Copy lines of stdout that contain one of these to "
            "filtered_stdout.log.",
        ),
        option(
            "--duplicate-stderr-filters",
            "DSUP_DUPLICATE_STDERR_FILTERS PET_DUPLICATE_STDERR_FILTERS",
            type=Parsed("texts", streams.parse_filters),
            metavar="TEXT,...",
            default="",
            help="The same for stderr.",
        ),
        option(
            "-q --quiet quiet",
            "DSUP_QUIET",
            is_flag=True,
            help="dsup says only what went wrong.",
        ),
        option(
            "-v --verbose verbose",
            "DSUP_VERBOSE",
            is_flag=True,
            help="dsup says more.",
        ),
        option(
            "--log-format",
            "DSUP_LOG_FORMAT",
            type=click.Choice(["text", "json"]),
            default="text",
            help="How dsup's own lines are written.",
        ),
    ),
)
