"""``dsup explain``: what a number, cause, signal or rule means, and what to do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

import click

if TYPE_CHECKING:
    from dsup.cli.meanings import Meaning

_WIDTH: Final = 88
_LABEL: Final = 12
_EXAMPLES: Final = """\b
Examples:
  dsup explain 79               an Xid of the kernel log, and the exit code 79
  dsup explain sxid 20034       an NVSwitch's error
  dsup explain exit 193         an exit code of dsup
  dsup explain host_oom         a cause; also SIGKILL, or the rule that --why prints
"""


@click.command(
    short_help="Say what an Xid, exit code, signal, cause or rule means.",
    epilog=_EXAMPLES,
    context_settings={"ignore_unknown_options": True},
)
@click.argument("words", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option("--json", "machine", is_flag=True, help="Print JSON for programs.")
def explain(words: tuple[str, ...], *, machine: bool) -> None:
    """Explain a word that dsup, or a driver in the kernel log, prints.

    WORDS are an Xid (79, xid 79), an NVSwitch's SXid (sxid 20034), an exit code (exit
    193), a signal (SIGKILL, -9), a cause (host_oom) or the name of a rule.
    """
    from dsup.cli.meanings import meanings

    word = " ".join(words)
    found = meanings(word)
    click.echo(_json(word, found) if machine else "\n".join(_text(found)))


def _text(found: Iterable[Meaning]) -> Iterator[str]:
    import textwrap

    for number, one in enumerate(found):
        if number:
            yield ""
        yield from textwrap.wrap(f"{one.name}: {one.text}", _WIDTH)
        for label, text in one.rows:
            yield from textwrap.wrap(
                text,
                _WIDTH,
                initial_indent=f"  {label:{_LABEL - 2}}",
                subsequent_indent=" " * _LABEL,
            )


def _json(word: str, found: Iterable[Meaning]) -> str:
    import json

    return json.dumps(
        {
            "schema": "dsup.explanation/1",
            "word": word,
            "meanings": [
                {"kind": one.kind, "name": one.name, "text": one.text, **_rows(one)}
                for one in found
            ],
        },
        indent=1,
    )


def _rows(meaning: Meaning) -> dict[str, str | list[str]]:
    """Return the rows by label; those of one label are a list."""
    labels = {label.replace(" ", "_") for label, _ in meaning.rows}
    many = {"cause", "how"}
    by_label = {
        label: [text for name, text in meaning.rows if name.replace(" ", "_") == label]
        for label in sorted(labels)
    }
    return {
        label: texts if label in many else texts[0] for label, texts in by_label.items()
    }
