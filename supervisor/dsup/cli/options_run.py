"""Options that say what runs, how often, and when it ends."""

from __future__ import annotations

from typing import Final

import click

from dsup.cli.config_file import load
from dsup.cli.option import Section, option
from dsup.cli.values import CommTimeout, Duration, HangAfter, Pauses, Ranks, Seconds
from dsup.core import environment
from dsup.core.limits import Limits, shown

PROGRAM: Final = Section(
    "What to run",
    (
        option(
            "-m --module module",
            "DSUP_MODULE PET_MODULE",
            is_flag=True,
            help="The script is a module, as for python -m.",
        ),
        option(
            "--no-python",
            "DSUP_NO_PYTHON PET_NO_PYTHON",
            is_flag=True,
            help="The script is a program, run without Python.",
        ),
        option(
            "--run-path",
            "DSUP_RUN_PATH PET_RUN_PATH",
            is_flag=True,
            help="Run the script with runpy.run_path (it may be a directory or a zip "
            "file).",
        ),
        option(
            "--no-faulthandler",
            "DSUP_NO_FAULTHANDLER",
            is_flag=True,
            help="A crash prints no Python stack; the kernel log then names the "
            "library it happened in.",
        ),
        option(
            "--config",
            "DSUP_CONFIG",
            metavar="FILE",
            is_eager=True,
            callback=load,
            help="Read a job from a TOML file: its keys are the names of options, "
            "script and args. The command line and variables win.",
        ),
    ),
)

RANKS: Final = Section(
    "How many ranks, and where",
    (
        option(
            "--nproc --nproc-per-node nproc",
            "DSUP_NPROC PET_NPROC_PER_NODE",
            type=Ranks(),
            metavar="N|cpu|gpu|auto",
            default="1",
            help="Ranks on this node; auto is one per GPU, else one per CPU.",
        ),
        option(
            "--virtual-local-rank",
            "DSUP_VIRTUAL_LOCAL_RANK PET_VIRTUAL_LOCAL_RANK",
            is_flag=True,
            help="Every rank has LOCAL_RANK 0 and sees one GPU, its own.",
        ),
        option(
            "--numa-binding",
            "DSUP_NUMA_BINDING",
            type=click.Choice(["node", "socket", "exclusive", "core-complex"]),
            help="Bind each rank to processors near its GPU (needs numactl).",
        ),
        option(
            "--role",
            "DSUP_ROLE PET_ROLE",
            metavar="NAME",
            default="default",
            help="ROLE_NAME of the ranks, and the name in their prefix.",
        ),
    ),
)

RESTARTS: Final = Section(
    "Restarts",
    (
        option(
            "--max-restarts",
            "DSUP_MAX_RESTARTS PET_MAX_RESTARTS",
            type=click.IntRange(min=0),
            metavar="N",
            shown="dsup chooses by cause",
            help="Restart every failure up to N times in a row (see --explain-policy).",
        ),
        option(
            "--restart-on",
            "DSUP_RESTART_ON",
            type=click.Choice(["infrastructure", "user"]),
            default="infrastructure",
            help="user: also restart failures of the script itself, where dsup "
            "chooses.",
        ),
        option(
            "--backoff",
            "DSUP_BACKOFF",
            type=Pauses(),
            metavar="SECONDS,...",
            default="10,30,90",
            help="Pauses before restarts, from the first death; the last one repeats.",
        ),
        option(
            "--healthy-after",
            "DSUP_HEALTHY_AFTER",
            type=Seconds(),
            metavar="SECONDS",
            default=1800,
            help="An attempt that lived this long and progressed clears the count of "
            "failures.",
        ),
        option(
            "--settle",
            "DSUP_SETTLE",
            type=Seconds(),
            metavar="SECONDS",
            default=2,
            help="How long to listen to the other ranks after a death that may be a "
            "victim's.",
        ),
    ),
)

HANGS: Final = Section(
    "Hangs",
    (
        option(
            "--on-hang",
            "DSUP_ON_HANG",
            type=click.Choice(["restart", "report", "stop"]),
            default="restart",
            help="What is done about ranks that hang, once their stacks are taken: "
            "restart as after any failure, only report it, or stop the run.",
        ),
        option(
            "--hang-after",
            "DSUP_HANG_AFTER",
            type=HangAfter(),
            metavar="PHASE=SECONDS,...|SECONDS|off",
            default=shown(Limits()),
            shown="learned from the run's own steps",
            help="How long a phase (init, train, eval, checkpoint, finish) may last "
            "without a step: seconds, 30m, auto or off. A length alone is for scripts "
            "that tell no steps: how long a rank may do nothing while no rank of the "
            "node prints. off alone: look for no hangs.",
        ),
    ),
)

STOPPING: Final = Section(
    "Stopping",
    (
        option(
            "--shutdown-timeout",
            "DSUP_SHUTDOWN_TIMEOUT PET_SHUTDOWN_TIMEOUT TORCH_ELASTIC_SHUTDOWN_TIMEOUT",
            type=Seconds(),
            metavar="SECONDS",
            default=25,
            help="From the first signal to the ranks until SIGKILL.",
        ),
        option(
            "--stop-after",
            "DSUP_STOP_AFTER",
            type=Duration(),
            metavar="DURATION",
            shown="no limit",
            help="Stop the run after so many seconds, or 30m, 2h, 1d12h, counted from "
            "its launch: exit code 143, no restart.",
        ),
        option(
            "--signals-to-handle",
            "DSUP_SIGNALS_TO_HANDLE PET_SIGNALS_TO_HANDLE",
            metavar="NAME,...",
            default=environment.SIGNALS,
            help="Signals that end the run; SIGUSR1 and SIGUSR2 may be added.",
        ),
        option(
            "--keep-helpers",
            "DSUP_KEEP_HELPERS",
            is_flag=True,
            help="Leave processes alone that outlive a successful run.",
        ),
    ),
)

CHECKPOINTS: Final = Section(
    "Checkpoints",
    (
        option(
            "--checkpoint-dir",
            "DSUP_CHECKPOINT_DIR",
            metavar="DIR",
            default="",
            help="Where the job keeps checkpoints in dsup's layout.",
        ),
        option(
            "--checkpoint-glob",
            "DSUP_CHECKPOINT_GLOB",
            metavar="PATTERN",
            default="",
            help="Checkpoints of any layout: the newest is the one with the highest "
            "number.",
        ),
        option(
            "--resume-arg",
            "DSUP_RESUME_ARG",
            metavar="ARG",
            default="",
            help="Added to the script's arguments when there is a checkpoint, with "
            "{path} filled in.",
        ),
    ),
)

TALK: Final = Section(
    "How ranks reach each other",
    (
        option(
            "--master-port",
            "DSUP_MASTER_PORT PET_MASTER_PORT",
            type=click.IntRange(0, 65535),
            metavar="PORT",
            default=0,
            shown="a fresh one each time",
            help="MASTER_PORT of every attempt.",
        ),
        option(
            "--store",
            "DSUP_STORE",
            type=click.Choice(["rank0", "agent"]),
            default="rank0",
            help="Who hosts the key-value store of the ranks; dsup's outlives rank 0.",
        ),
        option(
            "--comm-timeout",
            "DSUP_COMM_TIMEOUT",
            type=CommTimeout(),
            metavar="SECONDS|inherit",
            default="300",
            help="Time-out of collectives handed to the ranks.",
        ),
        option(
            "--heartbeat",
            "DSUP_HEARTBEAT_TRANSPORT",
            type=click.Choice(["page", "file", "tcp"]),
            default="page",
            help="How ranks report steps: by memory they inherit; by a file of the run "
            "directory, or a connection on this machine, for ranks in containers.",
        ),
    ),
)

LOOKING: Final = Section(
    "Looking before leaping",
    (
        option(
            "--dry-run",
            is_flag=True,
            help="Print everything that would be started, with its origin, and exit.",
        ),
        option(
            "--explain-policy",
            is_flag=True,
            help="Print causes, exit codes and restart rules, and exit.",
        ),
    ),
)
