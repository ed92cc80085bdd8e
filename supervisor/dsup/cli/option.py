"""How an option of ``dsup launch`` is written down."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


class Section(NamedTuple):
    """Options that the help shows together.

    Attributes:
        title: what it says above them.
        options: in the order in which people look for them.
    """

    title: str
    options: tuple[click.Option, ...]


_PATHS: Final = {"DIR": "dir", "FILE": "file", "PATTERN": "file"}
"""What the shell completes, by the metavar of an option that takes a path."""


class _Option(click.Option):
    def get_help_extra(self, _: click.Context) -> click.types.OptionHelpExtra:
        """Return nothing: the help says it in words, or a range would be said too."""
        return {}

    def shell_complete(
        self, ctx: click.Context, incomplete: str
    ) -> list[CompletionItem]:
        """Return what the shell may put in place of an unfinished value."""
        kind = _PATHS.get(self.metavar or "")
        if kind is None:
            return super().shell_complete(ctx, incomplete)
        from click.shell_completion import CompletionItem

        return [CompletionItem(incomplete, type=kind)]


def option(names: str, env: str = "", /, **attributes: Any) -> click.Option:  # noqa: ANN401 (click's)
    """Return an option.

    Args:
        names: its spellings, and its name in the code if that is another.
        env: the variables that are read in its place, the first one first.
        **attributes: click's; ``shown`` is what the help calls the default, if that is
            not its value.
    """
    shown = attributes.pop("shown", attributes.get("default", ""))
    if shown != "":
        attributes["help"] += f"  [default: {shown}]"
    return _Option(names.split(), envvar=env.split() or None, **attributes)
