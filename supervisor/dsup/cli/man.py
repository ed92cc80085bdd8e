"""The man pages, made from the commands: ``python -m dsup.cli.man docs/man``."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from typing import Final

import click

from dsup import __version__
from dsup.cli.command import SectionedCommand
from dsup.cli.main import cli
from dsup.cli.option import Section

_LAUNCH_STATUS: Final = (
    "0 when every rank ended with 0; below 128 a failure that trying again would only "
    "repeat; from 128 on one that is worth another try. dsup launch --explain-policy "
    "prints the table."
)
_EXIT_STATUS: Final[Mapping[str, str]] = {
    "dsup-diagnose": (
        "0 when there was something to say, also of a run that went well; 1 when what "
        "was named cannot be read; 2 when there is no such run or file."
    ),
    "dsup-doctor": (
        "0 when the node is fit, warnings or not; 193 when it is bad; 2 when only the "
        "job's own settings are, or for a wrong call."
    ),
    "dsup-drill": (
        "0 when no scenario failed, skipped ones or not; 1 when one did; 2 when there "
        "is no such scenario."
    ),
    "dsup-explain": "0 when the word has a meaning; 2 when dsup has no such word.",
    "dsup-kernel-log": (
        "0 when the log was read, whether or not it tells of faults; 1 when it cannot "
        "be read; 2 when no log or two were named."
    ),
    "dsup-logs": (
        "0 when all was shown; 1 when a log cannot be read; 2 when there is no such "
        "run, attempt or rank, or it keeps no logs; 141 when nobody reads on."
    ),
    "dsup-runs": "0 when all was shown that is kept, also of no run.",
    "dsup-stacks": (
        "0 when all was shown that could be taken; 2 when there is no such run, or no "
        "rank of it runs here."
    ),
    "dsup-status": (
        "0 when the run was shown, however it stands; 1 when its agent does not answer "
        "or its directory cannot be read; 2 when there is no such run."
    ),
    "dsup-stop": (
        "0 when the run is over, or will be with --no-wait; 1 when its agent refuses "
        "or does not answer; 2 when there is no such run, or it does not run here. The "
        "run itself ends with 130."
    ),
    "dsup-completion": "0 when the code was printed; 2 when the shell is not known.",
}
"""Of the pages whose command has codes of its own."""


def pages() -> dict[str, str]:
    """Return each page's text by its file name."""
    root = click.Context(cli, info_name="dsup", **cli.context_settings)
    found = {"dsup.1": _page(root, [])}
    for name, command in cli.commands.items():
        settings = command.context_settings
        context = click.Context(command, info_name=name, parent=root, **settings)
        found[f"dsup-{name}.1"] = _page(context, ["dsup(1)"])
    seen = [f"{name.removesuffix('.1')}(1)" for name in found if name != "dsup.1"]
    return {**found, "dsup.1": _page(root, seen)}


def _page(context: click.Context, see_also: list[str]) -> str:
    command = context.command
    name = context.command_path.replace(" ", "-")
    short = command.get_short_help_str(100).rstrip(".")
    lines = [
        f'.TH "{name.upper()}" "1" "" "dsup {__version__}" "dsup manual"',
        ".SH NAME",
        f"{_text(name)} \\- {_text(short[:1].lower() + short[1:])}",
        ".SH SYNOPSIS",
        f".B {_text(context.command_path)}",
        _text(" ".join(command.collect_usage_pieces(context))),
        ".SH DESCRIPTION",
        *_paragraphs(command.help or ""),
        *_options(context),
        *_commands(command),
        *_examples(command.epilog or ""),
        ".SH EXIT STATUS",
        _text(_EXIT_STATUS.get(name, _LAUNCH_STATUS)),
        ".SH SEE ALSO",
        _text(", ".join(see_also)),
    ]
    return "\n".join(lines) + "\n"


def _options(context: click.Context) -> Iterator[str]:
    command = context.command
    if isinstance(command, SectionedCommand):
        for section in command.sections:
            yield f'.SH "{section.title.upper()}"'
            yield from _records(context, section)
        return
    options = [p for p in command.get_params(context) if isinstance(p, click.Option)]
    yield ".SH OPTIONS"
    yield from _records(context, Section("", tuple(options)))


def _records(context: click.Context, section: Section) -> Iterator[str]:
    for option in section.options:
        record = option.get_help_record(context)
        if record:
            names, said = record
            yield ".TP"
            yield f"\\fB{_text(names)}\\fR"
            yield _text(said)
        if isinstance(option.envvar, list):
            yield _text(f"Else read from {', '.join(option.envvar)}.")


def _commands(command: click.Command) -> Iterator[str]:
    if isinstance(command, click.Group):
        yield ".SH COMMANDS"
        named: Mapping[str, click.Command] = command.commands
        for name, one in named.items():
            yield ".TP"
            yield f"\\fBdsup {_text(name)}\\fR"
            yield _text(one.get_short_help_str(100))


def _paragraphs(text: str) -> Iterator[str]:
    for paragraph in text.strip().split("\n\n"):
        yield _text(" ".join(paragraph.split()))
        yield ".PP"


def _examples(text: str) -> Iterator[str]:
    if text:
        yield ".SH EXAMPLES"
        yield ".nf"
        # click's own mark for lines that are to stay as they are.
        shown = text.removeprefix("\b\n").removeprefix("Examples:\n")
        yield from map(_text, shown.rstrip().splitlines())
        yield ".fi"


def _text(line: str) -> str:
    """Return a line in which roff finds nothing of its own."""
    plain = line.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{plain}" if plain.startswith((".", "'")) else plain


def main(directory: str) -> None:
    """Write the pages."""
    os.makedirs(directory, exist_ok=True)
    for name, text in pages().items():
        with open(os.path.join(directory, name), "w", encoding="utf-8") as file:
            file.write(text)


if __name__ == "__main__":
    main(sys.argv[1])
