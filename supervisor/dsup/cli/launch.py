"""``dsup launch``: the main command."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

import click

from dsup.cli import options_logs, options_run, options_service, options_torchrun
from dsup.cli.command import SectionedCommand
from dsup.cli.config_file import script_and_args
from dsup.linux.guardian import Guardian

if TYPE_CHECKING:
    from dsup.core.job import Job

_HELP: Final = """Run SCRIPT on every rank and keep it running.

dsup's options go before SCRIPT; all that follows it is the script's own.
"""
_EXAMPLES: Final = """Examples:
  dsup launch --nproc 8 train.py --lr 0.1       8 ranks of a script
  dsup launch --nproc gpu -m pkg.train          one rank per GPU, of a module
  dsup launch --nproc 8 --checkpoint-dir ckpt train.py
                                                restart from the newest checkpoint
  dsup launch --nproc 8 -r 3 -t 0:3 train.py    only rank 0 on the console
  dsup launch --dry-run --nproc 2 train.py      look first

What torchrun takes, this takes; docs/from-torchrun.md says what differs.
"""
_SECTIONS: Final = (
    options_run.PROGRAM,
    options_run.RANKS,
    options_run.RESTARTS,
    options_run.HANGS,
    options_run.STOPPING,
    options_logs.LOGS,
    options_logs.CONSOLE,
    options_run.CHECKPOINTS,
    options_run.TALK,
    options_service.SERVICE,
    options_run.LOOKING,
    options_torchrun.TORCHRUN,
)


@click.pass_context
def _launch(context: click.Context, /, **options: Any) -> int:  # noqa: ANN401 (click's)
    if options["explain_policy"]:
        from dsup.cli.explain import policy_text

        click.echo(policy_text())
        return 0
    options["script"], options["args"] = script_and_args(context)
    if not options["script"]:
        raise click.UsageError("no script was given", context)
    from dsup.cli.build import Call, build
    from dsup.cli.terminal import terminal

    call = Call(options, origins(context), os.environ, terminal())
    job = build(call, dry=options["dry_run"])
    if options["dry_run"]:
        from dsup.cli.explain import dry_run_text

        click.echo(dry_run_text(job))
        return 0
    guardian = context.obj
    if not isinstance(guardian, Guardian):
        raise click.UsageError("launch must run under its guard", context)
    if options["preflight"]:
        from dsup.cli.preflight import checked

        job = checked(job, guardian.pidfd)
    from dsup.agent import run

    return run(job, guardian, _look_back)


def _look_back(job: Job) -> bytes:
    """Find the run before; in an aide, which loads by itself what it needs."""
    from dsup.cli.predecessor import look_back

    return look_back(job)


def origins(context: click.Context) -> dict[str, str]:
    """Return where each option's value came from, for people."""
    return {
        param.name: _origin(context, param, param.name)
        for param in context.command.params
        if param.name in context.params
    }


def _origin(context: click.Context, param: click.Parameter, name: str) -> str:
    match context.get_parameter_source(name):
        case click.core.ParameterSource.ENVIRONMENT:
            return _variable(param)
        case click.core.ParameterSource.COMMANDLINE:
            return "command line"
        case click.core.ParameterSource.DEFAULT_MAP:
            return str(context.params["config"])
        case _:
            return "default"


def _variable(param: click.Parameter) -> str:
    names = [param.envvar] if isinstance(param.envvar, str) else param.envvar or ()
    return next(name for name in names if os.environ.get(name))


def _file(
    _context: click.Context, _param: click.Parameter, incomplete: str
) -> list[click.shell_completion.CompletionItem]:
    """Have the shell complete the name of a file."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type="file")]


launch: Final = SectionedCommand(
    _SECTIONS,
    name="launch",
    callback=_launch,
    help=_HELP,
    short_help="Run a script on every rank and keep it running.",
    epilog=_EXAMPLES,
    params=[
        click.Argument(["script"], required=False, shell_complete=_file),
        click.Argument(
            ["args"], nargs=-1, type=click.UNPROCESSED, shell_complete=_file
        ),
    ],
)
