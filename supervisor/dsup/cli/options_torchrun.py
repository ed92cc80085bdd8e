"""Options that are torchrun's and change little or nothing on one node."""

from __future__ import annotations

from typing import Final

import click

from dsup.cli.completion import print_completion
from dsup.cli.option import Section, option
from dsup.cli.values import Seconds

TORCHRUN: Final = Section(
    "For torchrun's sake",
    (
        option(
            "--standalone",
            "DSUP_STANDALONE PET_STANDALONE",
            is_flag=True,
            help="One node: what dsup does anyway.",
        ),
        option(
            "--nnodes",
            "DSUP_NNODES PET_NNODES",
            metavar="1",
            default="1",
            help="dsup does one node so far.",
        ),
        option(
            "--node-rank",
            "DSUP_NODE_RANK PET_NODE_RANK",
            type=click.IntRange(min=0),
            metavar="0",
            default=0,
            help="Of one node there is only 0.",
        ),
        option(
            "--master-addr",
            "DSUP_MASTER_ADDR PET_MASTER_ADDR",
            metavar="ADDRESS",
            default="",
            shown="127.0.0.1",
            help="MASTER_ADDR of the ranks.",
        ),
        option(
            "--local-addr",
            "DSUP_LOCAL_ADDR PET_LOCAL_ADDR",
            metavar="ADDRESS",
            default="",
            help="MASTER_ADDR of the ranks, where --master-addr is not given.",
        ),
        option(
            "--rdzv-backend",
            "DSUP_RDZV_BACKEND PET_RDZV_BACKEND",
            metavar="static|c10d",
            default="static",
            help="One node needs no rendezvous.",
        ),
        option(
            "--rdzv-endpoint",
            "DSUP_RDZV_ENDPOINT PET_RDZV_ENDPOINT",
            metavar="HOST[:PORT]",
            default="",
            help="As above.",
        ),
        option(
            "--rdzv-id",
            "DSUP_RDZV_ID PET_RDZV_ID",
            metavar="ID",
            default="none",
            shown="dsup's run id",
            help="TORCHELASTIC_RUN_ID of the ranks.",
        ),
        option(
            "--rdzv-conf",
            "DSUP_RDZV_CONF PET_RDZV_CONF",
            metavar="KEY=VALUE,...",
            default="",
            help="As above.",
        ),
        option(
            "--monitor-interval",
            "DSUP_MONITOR_INTERVAL PET_MONITOR_INTERVAL",
            type=Seconds(),
            metavar="SECONDS",
            default=0.1,
            help="No effect: dsup is told of a death at once and does not poll.",
        ),
        option(
            "--start-method",
            "DSUP_START_METHOD PET_START_METHOD",
            metavar="spawn",
            default="spawn",
            help="Every rank is a fresh process.",
        ),
        option(
            "--event-log-handler",
            "DSUP_EVENT_LOG_HANDLER PET_EVENT_LOG_HANDLER",
            metavar="null",
            default="null",
            help="Events are in events.jsonl of the run directory.",
        ),
        option(
            "--logs-specs",
            metavar="default",
            default="default",
            help="The options of Logs and Console say it all.",
        ),
        option(
            "--print-completion",
            type=click.Choice(["bash", "zsh", "fish"]),
            is_eager=True,
            expose_value=False,
            callback=print_completion,
            help="What dsup completion prints.",
        ),
    ),
)
