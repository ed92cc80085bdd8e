"""``dsup launch``: the options of the main command."""

from __future__ import annotations

import os
from typing import Any, Final

import click

from dsup.cli.values import CommTimeout, Pauses, Ranks, Seconds
from dsup.linux.guardian import Guardian

_CONTEXT: Final = {
    # Everything after the script is the script's, whatever it looks like.
    "allow_interspersed_args": False,
    "help_option_names": ["-h", "--help"],
    "max_content_width": 100,
    "token_normalize_func": lambda word: word.replace("_", "-"),
}


@click.command(context_settings=_CONTEXT)
@click.option(
    "--nproc",
    "--nproc-per-node",
    "nproc",
    type=Ranks(),
    metavar="N|cpu|gpu|auto",
    default="1",
    show_default=True,
    envvar=["DSUP_NPROC", "PET_NPROC_PER_NODE"],
    help="Ranks on this node; auto is one per GPU, else one per CPU.",
)
@click.option(
    "--standalone",
    is_flag=True,
    envvar=["DSUP_STANDALONE", "PET_STANDALONE"],
    help="Accepted for torchrun's sake: one node needs no rendezvous here.",
)
@click.option(
    "-m",
    "--module",
    "module",
    is_flag=True,
    envvar=["DSUP_MODULE", "PET_MODULE"],
    help="The script is a module, as for python -m.",
)
@click.option(
    "--no-python",
    is_flag=True,
    envvar=["DSUP_NO_PYTHON", "PET_NO_PYTHON"],
    help="The script is a program, run without Python.",
)
@click.option(
    "--max-restarts",
    type=click.IntRange(min=0),
    metavar="N",
    default=None,
    envvar=["DSUP_MAX_RESTARTS", "PET_MAX_RESTARTS"],
    help="Restart every failure up to N times in a row. Not given: dsup chooses "
    "(see --explain-policy).",
)
@click.option(
    "--backoff",
    type=Pauses(),
    default="10,30,90",
    show_default=True,
    envvar="DSUP_BACKOFF",
    help="Pauses before restarts, from the first death; the last one repeats.",
)
@click.option(
    "--healthy-after",
    type=Seconds(),
    default=1800,
    show_default=True,
    envvar="DSUP_HEALTHY_AFTER",
    help="An attempt that lived this long and progressed clears the count of failures.",
)
@click.option(
    "--shutdown-timeout",
    type=Seconds(),
    default=25,
    show_default=True,
    envvar=["DSUP_SHUTDOWN_TIMEOUT", "PET_SHUTDOWN_TIMEOUT"],
    help="From the first signal to the ranks until SIGKILL.",
)
@click.option(
    "--settle",
    type=Seconds(),
    default=2,
    show_default=True,
    envvar="DSUP_SETTLE",
    help="How long to listen to the other ranks after a death that may be a victim's.",
)
@click.option(
    "--log-dir",
    metavar="DIR",
    default=None,
    envvar=["DSUP_RUNS_DIR", "PET_LOG_DIR"],
    help="Where run directories are made. /dev/null: keep no rank logs.  "
    "[default: $STATE_DIRECTORY, ~/.local/state/dsup/runs]",
)
@click.option(
    "--master-port",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    default=0,
    envvar=["DSUP_MASTER_PORT", "PET_MASTER_PORT"],
    help="MASTER_PORT of every attempt.  [default: a fresh one each time]",
)
@click.option(
    "--checkpoint-dir",
    metavar="DIR",
    default="",
    envvar="DSUP_CHECKPOINT_DIR",
    help="Where the job keeps checkpoints in dsup's layout.",
)
@click.option(
    "--checkpoint-glob",
    metavar="PATTERN",
    default="",
    envvar="DSUP_CHECKPOINT_GLOB",
    help="Checkpoints of any layout: the newest is the one with the highest number.",
)
@click.option(
    "--resume-arg",
    metavar="ARG",
    default="",
    envvar="DSUP_RESUME_ARG",
    help="Added to the script's arguments when there is a checkpoint, with {path} "
    "filled in.",
)
@click.option(
    "--store",
    type=click.Choice(["rank0", "agent"]),
    default="rank0",
    show_default=True,
    envvar="DSUP_STORE",
    help="Who hosts the key-value store of the ranks; dsup's outlives rank 0.",
)
@click.option(
    "--comm-timeout",
    type=CommTimeout(),
    metavar="SECONDS|inherit",
    default="300",
    show_default=True,
    envvar="DSUP_COMM_TIMEOUT",
    help="Time-out of collectives handed to the ranks.",
)
@click.option(
    "--restart-on",
    type=click.Choice(["infrastructure", "user"]),
    default="infrastructure",
    show_default=True,
    envvar="DSUP_RESTART_ON",
    help="user: also restart failures of the script itself, where dsup chooses.",
)
@click.option(
    "--keep-helpers",
    is_flag=True,
    envvar="DSUP_KEEP_HELPERS",
    help="Leave processes alone that outlive a successful run.",
)
@click.option(
    "--explain-policy",
    is_flag=True,
    help="Print causes, exit codes and restart rules, and exit.",
)
@click.option(
    "--dry-run",
    is_flag=True,
    help="Print everything that would be started, with its origin, and exit.",
)
@click.argument("script", required=False)
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def launch(context: click.Context, /, **options: Any) -> int:  # noqa: ANN401 (click's)
    """Run SCRIPT on every rank and keep it running.

    \b
    dsup launch --nproc 8 train.py --lr 0.1
    dsup launch --nproc gpu --checkpoint-dir ckpt -m pkg.train
    """  # noqa: D301 (click's mark for lines that stay as they are)
    if options["explain_policy"]:
        from dsup.cli.explain import policy_text

        click.echo(policy_text())
        return 0
    if not options["script"]:
        raise click.UsageError("no script was given", context)
    from dsup.cli.build import Call, build

    job = build(Call(options, origins(context), os.environ), dry=options["dry_run"])
    if options["dry_run"]:
        from dsup.cli.explain import job_text

        click.echo(job_text(job))
        return 0
    guardian = context.obj
    if not isinstance(guardian, Guardian):
        raise click.UsageError("launch must run under its guard", context)
    from dsup.agent import run

    return run(job, guardian)


def origins(context: click.Context) -> dict[str, str]:
    """Return where each option's value came from, for people."""
    found = {}
    for param in context.command.params:
        name = param.name or ""
        source = context.get_parameter_source(name)
        if source is click.core.ParameterSource.ENVIRONMENT:
            found[name] = _variable(param)
        else:
            given = source is click.core.ParameterSource.COMMANDLINE
            found[name] = "command line" if given else "default"
    return found


def _variable(param: click.Parameter) -> str:
    names = [param.envvar] if isinstance(param.envvar, str) else param.envvar or ()
    return next(name for name in names if os.environ.get(name))
