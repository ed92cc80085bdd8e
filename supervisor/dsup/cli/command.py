"""A click command with sections in its help, abbreviations, and words of its own."""

from __future__ import annotations

from typing import Any

import click

from dsup.cli.option import Section
from dsup.cli.words import AmbiguousError, Spelling, spelled_out

CONTEXT = {
    # Everything after the script is the script's, whatever it looks like.
    "allow_interspersed_args": False,
    "help_option_names": ["-h", "--help"],
    "max_content_width": 100,
    "token_normalize_func": lambda word: word.replace("_", "-"),
}


class SectionedCommand(click.Command):
    """A command whose options are in sections.

    Args:
        sections: what it takes, in the order of its help.
        **attributes: click's.
    """

    def __init__(self, sections: tuple[Section, ...], **attributes: Any) -> None:  # noqa: ANN401 (click's)
        self.sections = sections
        options = [option for section in sections for option in section.options]
        params = [*options, *attributes.pop("params", ())]
        super().__init__(context_settings=CONTEXT, params=params, **attributes)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Spell abbreviations out, then parse."""
        if not ctx.resilient_parsing:
            try:
                args = spelled_out(args, self._spellings(ctx))
            except AmbiguousError as error:
                raise click.UsageError(str(error), ctx) from None
        return super().parse_args(ctx, args)

    def format_options(
        self, ctx: click.Context, formatter: click.HelpFormatter
    ) -> None:
        """Write the options, section by section."""
        for section in (*self.sections, self._rest(ctx)):
            records = [option.get_help_record(ctx) for option in section.options]
            with formatter.section(section.title):
                formatter.write_dl([record for record in records if record])

    def format_epilog(self, _: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the epilog as it stands."""
        if self.epilog:
            formatter.write_paragraph()
            formatter.write(f"{self.epilog}\n")

    def _rest(self, ctx: click.Context) -> Section:
        helps = self.get_help_option(ctx)
        return Section("Help", (helps,) if helps else ())

    def _spellings(self, ctx: click.Context) -> dict[str, Spelling]:
        return {
            name: Spelling(param.name or "", not param.is_flag and not param.count)
            for param in self.get_params(ctx)
            if isinstance(param, click.Option)
            for name in param.opts
        }
