"""Options of a run that is watched by others: metrics, commands on events, checks."""

from __future__ import annotations

from typing import Final

import click

from dsup.cli.option import Section, option

SERVICE: Final = Section(
    "As a service",
    (
        option(
            "--preflight",
            "DSUP_PREFLIGHT",
            is_flag=True,
            help="Look first whether the node is fit, as dsup doctor does, and refuse "
            "a bad one with exit code 193.",
        ),
        option(
            "--metrics",
            "DSUP_METRICS",
            metavar="HOST:PORT",
            default="",
            help="Serve metrics for Prometheus there; nothing listens without it.",
        ),
        option(
            "--metrics-file",
            "DSUP_METRICS_FILE",
            metavar="FILE",
            default="",
            help="Write metrics into FILE, for node_exporter's textfile collector.",
        ),
        option(
            "--on-event",
            "DSUP_ON_EVENT",
            metavar="COMMAND",
            default="",
            help="Run COMMAND for each thing that happens to the run, with JSON on its "
            "standard input.",
        ),
        option(
            "--rank-cgroups",
            "DSUP_RANK_CGROUPS",
            type=click.Choice(["auto", "on", "off"]),
            default="auto",
            help="auto: a cgroup of its own for each rank, where dsup was given a "
            "cgroup to divide (systemd: Delegate=yes); on: you say that it was.",
        ),
    ),
)
