"""``dsup diagnose``: which rank of a run failed first, and why, whoever launched it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final

import click

from dsup.core.errors import SpecError

if TYPE_CHECKING:
    from dsup.cli.answer import Diagnosis
    from dsup.cli.bundle_files import Logs
    from dsup.cli.shown import Wish
    from dsup.core.output import Tone

_EXAMPLES: Final = """\b
Examples:
  dsup diagnose                     the newest run
  dsup diagnose 8a1f0c              a run by a part of its name, or by its id
  dsup diagnose runs/ ranks/        the newest run in a directory; a folder of logs
  dsup diagnose slurm-17.out        what torchrun, srun, mpirun, … left behind
  kubectl logs job/train | dsup diagnose -
  dsup diagnose --why --html report.html
  dsup diagnose --bundle out.tar.gz, and elsewhere: dsup diagnose out.tar.gz
"""
_STDOUT: Final = "-"


def _print_schema(context: click.Context, _: click.Parameter, asked: bool) -> None:
    if asked and not context.resilient_parsing:
        import json

        from dsup.report.schema import schema

        click.echo(json.dumps(schema(), indent=1))
        context.exit()


@click.command(
    short_help="Say which rank of a run failed first, and why.",
    epilog=_EXAMPLES,
)
@click.argument("what", nargs=-1, type=click.Path(), metavar="[RUN|DIR|FILE]...")
@click.option(
    "--all", "everything", is_flag=True, help="Print every failed attempt in full."
)
@click.option(
    "--why",
    "why",
    is_flag=True,
    help="Print how the rules decided, and what is missing.",
)
@click.option("--json", "machine", is_flag=True, help="Print JSON for programs.")
@click.option(
    "--json-schema",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_schema,
    help="Print the JSON Schema of what --json prints, and exit.",
)
@click.option(
    "--html",
    "page",
    metavar="FILE",
    help="Write one page that loads nothing, for a ticket; - is standard output.",
)
@click.option(
    "--bundle",
    metavar="OUT.tar.gz",
    help="Pack what a colleague needs, secrets masked.",
)
@click.option(
    "--bundle-logs",
    type=click.Choice(["all", "tail", "none"]),
    default="tail",
    show_default=True,
    help="How much of the ranks' logs the bundle takes.",
)
def diagnose(what: tuple[str, ...], **options: Any) -> None:  # noqa: ANN401 (click's)
    """Name the first rank and the cause, show the proof, say what to do.

    RUN is a run id or a part of a run directory's name; without it, the newest run that
    is kept where dsup launch keeps runs. DIR is a run directory, a directory of runs
    (the newest is shown) or of logs, with dumps of torch's flight recorders among them.
    FILE is a log of any launcher, such a dump, a bundle or a verdict.json; - is
    standard input.
    """
    with ExitStack() as stack:
        try:
            _diagnose(what, options, stack)
        except OSError as error:
            _raise_vanished(error)


def _diagnose(
    words: Sequence[str], options: Mapping[str, Any], stack: ExitStack
) -> None:
    from dsup.cli.answers import answers

    machine, page, bundle = options["machine"], options["page"], options["bundle"]
    if machine and page == _STDOUT:
        raise SpecError("cannot print JSON and a page at once (name a file for --html)")
    found, remarks = answers(words, os.environ, stack)
    if page or bundle:
        _refuse_several(found)
    answer = _json(found, remarks) if machine or bundle else ""
    made = []
    if page == _STDOUT:
        click.echo(_page(found[0]))
        return
    if page:
        made.append(_write_page(found[0], page))
    if bundle:
        made.append(_write_bundle(found[0], answer, bundle, options["bundle_logs"]))
    if machine:
        click.echo(answer)
        return
    from dsup.cli.shown import Wish

    wish = Wish(options["everything"], options["why"], speaks_unicode_here())
    _print(found, [*remarks, *made], wish)


def _json(found: Sequence[Diagnosis], remarks: Sequence[str]) -> str:
    import json

    from dsup.report.schema import NAME

    verdicts = [
        {**case.fields(), "source": number}
        for number, one in enumerate(found)
        for case in one.cases
    ]
    said = [text for one in found for text in one.remarks]
    answer = {
        "schema": NAME,
        "verdicts": verdicts,
        "sources": [one.source() for one in found],
        "remarks": [*said, *remarks],
    }
    return json.dumps(answer, indent=1, allow_nan=False)


def _print(found: Sequence[Diagnosis], remarks: Sequence[str], wish: Wish) -> None:
    from dsup.cli.shown import shown

    lines = painted(shown(found, remarks, wish))
    click.echo("\n".join(lines), color=True)  # they have none where none are wanted


def painted(rows: Iterable[tuple[str, Tone]]) -> Iterator[str]:
    """Yield lines in the colour of their tone, where the output shows colours."""
    from dsup.core.appearance import appearance
    from dsup.edges.scribe.console import OFF, PALETTE

    colour = appearance(os.environ, terminal=_is_terminal()).colour
    for line, tone in rows:
        loud = colour and tone != "plain"
        yield f"{PALETTE[tone].decode()}{line}{OFF.decode()}" if loud else line


def _is_terminal() -> bool:
    return sys.stdout is not None and sys.stdout.isatty()


def speaks_unicode_here() -> bool:
    """Return whether standard output shows more than ASCII."""
    from dsup.core.appearance import speaks_unicode

    # Standard output may be closed: then nobody sees what is written.
    encoding = getattr(sys.stdout, "encoding", "utf8")
    encodes = encoding.lower().replace("-", "") == "utf8"
    return speaks_unicode(os.environ) and encodes


def _refuse_several(found: Sequence[Diagnosis]) -> None:
    if len(found) > 1:
        names = ", ".join(one.name for one in found[:3])
        raise SpecError(
            f"cannot make one page or bundle of {len(found)} runs: {names} (give one)"
        )


def _page(found: Diagnosis) -> str:
    from dsup.cli.page import html
    from dsup.report.masked import own_secrets

    return html(found, own_secrets(os.environ.items()))


def _write_page(found: Diagnosis, path: str) -> str:
    from dsup.cli.written import replacing
    from dsup.report.html.page import is_page

    text = _page(found)
    with replacing(path, "the report", is_page) as file:
        file.write(text.encode(errors="backslashreplace"))
    return f"the report is in {path}"


def _write_bundle(found: Diagnosis, answer: str, path: str, logs: Logs) -> str:
    from dsup.cli import bundle
    from dsup.cli.asked import BUNDLE_ENDINGS
    from dsup.cli.shown import panel_of
    from dsup.cli.written import replacing
    from dsup.report.masked import own_secrets

    if not path.endswith(BUNDLE_ENDINGS):
        raise SpecError(
            f"cannot pack a bundle into {path}, because its name does not end in "
            ".tar.gz (dsup diagnose would not know it again)"
        )
    panel = "".join(f"{line}\n" for line in panel_of(found))
    extras = bundle.Extras(answer, panel, _page(found))
    own = own_secrets(os.environ.items())
    with replacing(path, "the bundle", bundle.is_bundle) as file:
        made = bundle.write(file, found, extras, logs, own)
    return bundle.told(made, path)


def _raise_vanished(error: OSError) -> None:
    """Tell of a file that could not be read to its end; others are the caller's.

    Raises:
        UnreadableRunError: the file went, or its disk failed, while it was read.
        OSError: it was no file that was read.
    """
    from dsup.cli.run_files import UnreadableRunError

    if error.filename is None:
        raise error
    reason = (error.strerror or str(error)).lower()
    raise UnreadableRunError(
        f"cannot diagnose {error.filename!s}, because it cannot be read: {reason} (try "
        "again: it may have changed meanwhile)"
    ) from None
