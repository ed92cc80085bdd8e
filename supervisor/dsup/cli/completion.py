"""``dsup completion``: what makes a shell complete dsup's words."""

from __future__ import annotations

import click

_VARIABLE = "_DSUP_COMPLETE"


@click.command(
    short_help="Print what makes a shell complete dsup's words.",
    epilog='For this shell:  eval "$(dsup completion bash)"',
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the code that makes SHELL complete dsup's commands and options."""
    click.echo(_code(context, shell))


def print_completion(
    context: click.Context, _: click.Parameter, shell: str | None
) -> None:
    """Print the code, as torchrun's option of this name does, and end."""
    if shell and not context.resilient_parsing:
        click.echo(_code(context, shell))
        context.exit()


def _code(context: click.Context, shell: str) -> str:
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    if found is None:
        raise click.UsageError(f"click cannot complete for {shell}", context)
    return found(context.find_root().command, {}, "dsup", _VARIABLE).source()
