"""The root of the command line, and how every refusal of it reads."""

from __future__ import annotations

import contextlib
import errno
import sys

import click

from dsup.cli.completion import completion
from dsup.cli.diagnose import diagnose
from dsup.cli.doctor import doctor
from dsup.cli.drill import drill
from dsup.cli.explain_word import explain
from dsup.cli.kernel_log import kernel_log
from dsup.cli.launch import launch
from dsup.cli.logs import logs
from dsup.cli.runs import runs
from dsup.cli.stacks import stacks
from dsup.cli.status import status
from dsup.cli.stop import stop
from dsup.core.errors import DsupError
from dsup.core.exits import BUG, OK, WRONG_CALL, stop_code
from dsup.core.printable import printable
from dsup.linux.guardian import Guardian

CANNOT_WRITE = 1
SIGINT_CODE = stop_code(2)


def _print_version(context: click.Context, _: click.Parameter, asked: bool) -> None:
    if asked and not context.resilient_parsing:
        from dsup.cli.version import version_text

        click.echo(version_text())
        context.exit()


class _InOrder(click.Group):
    def list_commands(self, _: click.Context) -> list[str]:
        """Return the commands, the one that people look for first."""
        return list(self.commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that is meant; of a script, say which one runs it.

        Raises:
            click.UsageError: there is no such command.
        """
        if args[0].endswith(".py"):
            said = f"{args[0]!r} is no command: dsup launch {args[0]} would run it"
            raise click.UsageError(said, ctx)
        return super().resolve_command(ctx, args)


@click.group(
    cls=_InOrder,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="dsup COMMAND --help says more of each.",
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Print the versions of dsup, Python and the kernel, and exit.",
)
def cli() -> None:
    """Supervise distributed PyTorch training on GPU nodes."""


cli.add_command(launch)
cli.add_command(diagnose)
cli.add_command(status)
cli.add_command(stop)
cli.add_command(runs)
cli.add_command(logs)
cli.add_command(stacks)
cli.add_command(doctor)
cli.add_command(drill)
cli.add_command(explain)
cli.add_command(kernel_log)
cli.add_command(completion)


def run(words: list[str], guardian: Guardian | None) -> int:
    """Run the command line and return the exit code; a refusal is one line.

    Args:
        words: the arguments after ``dsup``.
        guardian: for ``launch``, the guard this process was forked from.
    """
    try:
        code = cli.main(words, prog_name="dsup", standalone_mode=False, obj=guardian)
    except click.exceptions.NoArgsIsHelpError as error:
        print(error.format_message(), file=sys.stderr)
        return WRONG_CALL
    except click.ClickException as error:
        return _refuse(_one_line(error, launching=guardian is not None), WRONG_CALL)
    except click.Abort:
        return SIGINT_CODE
    except DsupError as error:
        return _refuse(str(error), error.exit_code)
    except OSError as error:
        if error.errno not in {errno.ENOSPC, errno.EPIPE, errno.EBADF}:
            return _refuse(_bug(error), BUG)
        reason = str(error.strerror).lower()
        return _refuse(f"cannot write the output, because {reason}", CANNOT_WRITE)
    except Exception as error:  # noqa: BLE001 (a user is to see no traceback of ours)
        return _refuse(_bug(error), BUG)
    return code if isinstance(code, int) else OK


def _refuse(message: str, code: int) -> int:
    with contextlib.suppress(OSError, ValueError):  # closed, or nobody reads it
        print(f"dsup: {printable(message)}", file=sys.stderr, flush=True)
    return code


def _one_line(error: click.ClickException, *, launching: bool) -> str:
    message = " ".join(error.format_message().split()).rstrip(".")
    command = "dsup launch" if launching else "dsup"
    if isinstance(error, click.UsageError) and error.ctx:
        command = error.ctx.command_path
    reason = message[:1].lower() + message[1:]
    return f"cannot run {command}, because {reason} (see {command} --help)"


def _bug(error: Exception) -> str:
    frame = error.__traceback__
    while frame and frame.tb_next:
        frame = frame.tb_next
    code = frame.tb_frame.f_code if frame else None
    where = f"{code.co_filename}:{frame.tb_lineno}" if code and frame else "?"
    kind = type(error).__name__
    return f"a bug in dsup: {kind} at {where}: {error} (please report this line)"
